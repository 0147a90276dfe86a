/* Runs a fuzz target over the files named on the command line. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int
replay_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data;
	long n;

	if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (n = ftell(f)) < 0 ||
	    fseek(f, 0, SEEK_SET) != 0) {
		perror(path);
		return 1;
	}
	data = malloc((size_t)n + 1);
	if (data == NULL || fread(data, 1, (size_t)n, f) != (size_t)n) {
		perror(path);
		return 1;
	}
	fclose(f);
	LLVMFuzzerTestOneInput(data, (size_t)n);
	free(data);
	return 0;
}

int
main(int argc, char **argv)
{
	int i, bad = 0;

	printf("1..1\n");
	for (i = 1; i < argc; i++)
		bad |= replay_file(argv[i]);
	printf("%sok 1 - %d inputs replayed\n", bad ? "not " : "", argc - 1);
	return bad;
}
