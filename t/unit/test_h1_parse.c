/* HTTP/1.1 heads and bodies: what is served, and all that is refused. */
#include "config.h"

#include "base/mem.h"
#include "h1_feed.h"
#include "http/h1_write.h"
#include "tap.h"

#define H "Host: h\r\n"
#define GET "GET / HTTP/1.1\r\n"
#define POST "POST / HTTP/1.1\r\n" H
#define TE "Transfer-Encoding: chunked\r\n"
#define OK "GET / [/? @h] K {"
#define POSTED "POST / [/? @h] K {} <"
#define X10 "xxxxxxxxxx"
#define X100 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10
#define X1000 X100 X100 X100 X100 X100 X100 X100 X100 X100 X100

struct test {
	const char *name;
	const char *in;
	size_t n;
	const char *want; /* refusals: their beginning */
};
#define T(name, in, want) \
	{ \
		name, "" in, sizeof(in) - 1, want \
	}

static const struct test requests[] = {
	/* plain */
	T("get", GET H "\r\n", OK "} <>"),
	T("nothing yet", "", ""),
	T("half a line", "GET / HT", ""),
	T("head without its end", GET H, ""),
	T("two in a row", GET H "\r\n" GET H "\r\n", OK "} <>" OK "} <>"),
	T("fields in order", GET H "B: 2\r\na:1\r\nB:\t3 \t\r\n\r\n",
	    OK "B=2;a=1;B=3;} <>"),
	T("empty value", GET H "A:\r\n\r\n", OK "A=;} <>"),
	T("value of spaces", GET H "A:  \t \r\n\r\n", OK "A=;} <>"),
	T("value with spaces inside", GET H "A: b  c\r\n\r\n",
	    OK "A=b  c;} <>"),
	T("value of obs-text", GET H "A: \xc3\xa4\xff\r\n\r\n",
	    OK "A=\xc3\xa4\xff;} <>"),
	T("colons in a value", GET H "A: b:c:\r\n\r\n", OK "A=b:c:;} <>"),
	T("odd token characters", GET H "!#$%&'*+-.^_`|~9: x\r\n\r\n",
	    OK "!#$%&'*+-.^_`|~9=x;} <>"),
	T("one empty line before", "\r\n" GET H "\r\n", OK "} <>"),
	T("an empty line after a body",
	    POST "Content-Length: 1\r\n\r\nx\r\n" GET H "\r\n",
	    POSTED "x>" OK "} <>"),
	T("two empty lines before", "\r\n\r\n" GET H "\r\n", "400"),
	T("LF before", "\n" GET H "\r\n", "400"),
	T("CR before", "\rGET / HTTP/1.1\r\n" H "\r\n", "400"),
	T("CR CR LF before", "\r\r\n" GET H "\r\n", "400"),
	T("other minor version", "GET / HTTP/1.2\r\n" H "\r\n", OK "} <>"),
	T("minor version 9", "GET / HTTP/1.9\r\n" H "\r\n", OK "} <>"),

	/* request line */
	T("method in lower case is another method",
	    "get / HTTP/1.1\r\n" H "\r\n", "get / [/? @h] K {} <>"),
	T("no method", " / HTTP/1.1\r\n" H "\r\n", "400"),
	T("method with a colon", "GE:T / HTTP/1.1\r\n" H "\r\n", "400"),
	T("method with a slash", "G/T / HTTP/1.1\r\n" H "\r\n", "400"),
	T("method with NUL", "G\0T / HTTP/1.1\r\n" H "\r\n", "400"),
	T("method in UTF-8", "G\xc3\xa4T / HTTP/1.1\r\n" H "\r\n", "400"),
	T("tab after the method", "GET\t/ HTTP/1.1\r\n" H "\r\n", "400"),
	T("two spaces after the method", "GET  / HTTP/1.1\r\n" H "\r\n", "400"),
	T("two spaces before the version", "GET /  HTTP/1.1\r\n" H "\r\n",
	    "400"),
	T("space after the version", "GET / HTTP/1.1 \r\n" H "\r\n", "400"),
	T("space in the target", "GET /a b HTTP/1.1\r\n" H "\r\n", "400"),
	T("tab in the target", "GET /a\tb HTTP/1.1\r\n" H "\r\n", "400"),
	T("NUL in the target", "GET /a\0b HTTP/1.1\r\n" H "\r\n", "400"),
	T("DEL in the target", "GET /a\x7f HTTP/1.1\r\n" H "\r\n", "400"),
	T("raw UTF-8 in the target", "GET /\xc3\xa4 HTTP/1.1\r\n" H "\r\n",
	    "400"),
	T("fragment in the target", "GET /a#b HTTP/1.1\r\n" H "\r\n", "400"),
	T("backslash in the target", "GET /a\\b HTTP/1.1\r\n" H "\r\n", "400"),
	T("bare CR in the request line", "GET /a\rb HTTP/1.1\r\n" H "\r\n",
	    "400"),
	T("CR CR LF", "GET / HTTP/1.1\r\r\n" H "\r\n", "400"),
	T("bare LF after the request line", "GET / HTTP/1.1\n" H "\r\n", "400"),
	T("HTTP/0.9", "GET /\r\n\r\n", "505"),
	T("no version after the space", "GET / \r\n" H "\r\n", "400"),
	T("version in lower case", "GET / http/1.1\r\n" H "\r\n", "400"),
	T("version HTTP/2.0", "GET / HTTP/2.0\r\n" H "\r\n", "505"),
	T("version HTTP/2", "GET / HTTP/2\r\n" H "\r\n", "505"),
	T("version HTTP/0.9", "GET / HTTP/0.9\r\n" H "\r\n", "505"),
	T("version HTTP/3.1", "GET / HTTP/3.1\r\n" H "\r\n", "505"),
	T("version HTTP/1", "GET / HTTP/1\r\n" H "\r\n", "505"),
	T("version HTTP/1.", "GET / HTTP/1.\r\n" H "\r\n", "400"),
	T("version HTTP/1.10", "GET / HTTP/1.10\r\n" H "\r\n", "400"),
	T("version HTTP/11", "GET / HTTP/11\r\n" H "\r\n", "400"),
	T("version HTTP/01.1", "GET / HTTP/01.1\r\n" H "\r\n", "400"),
	T("version HTTP/1,1", "GET / HTTP/1,1\r\n" H "\r\n", "400"),
	T("version HTTPS/1.1", "GET / HTTPS/1.1\r\n" H "\r\n", "400"),
	T("version ICY", "GET / ICY\r\n" H "\r\n", "400"),
	T("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"),
	T("TLS hello", "\x16\x03\x01\x02\x00\x01", "400"),
	T("first byte NUL", "\0", "400"),

	/* targets */
	T("query", "GET /a/b?c=d?e HTTP/1.1\r\n" H "\r\n",
	    "GET /a/b?c=d?e [/a/b?c=d?e @h] K {} <>"),
	T("empty query", "GET /a? HTTP/1.1\r\n" H "\r\n",
	    "GET /a? [/a? @h] K {} <>"),
	T("two slashes", "GET //a HTTP/1.1\r\n" H "\r\n",
	    "GET //a [//a? @h] K {} <>"),
	T("no slash", "GET a HTTP/1.1\r\n" H "\r\n", "400"),
	T("only a query", "GET ?a HTTP/1.1\r\n" H "\r\n", "400"),
	T("absolute", "GET http://g:81/a?b HTTP/1.1\r\n" H "\r\n",
	    "GET http://g:81/a?b [/a?b @g:81] K {} <>"),
	T("absolute without a path", "GET HTTP://g HTTP/1.1\r\n" H "\r\n",
	    "GET HTTP://g [/? @g] K {} <>"),
	T("absolute, query only", "GET https://g?q HTTP/1.1\r\n" H "\r\n",
	    "GET https://g?q [/?q @g] K {} <>"),
	T("absolute, userinfo", "GET http://u@g/ HTTP/1.1\r\n" H "\r\n", "400"),
	T("absolute, no host", "GET http:///a HTTP/1.1\r\n" H "\r\n", "400"),
	T("absolute, bad port", "GET http://g:x/ HTTP/1.1\r\n" H "\r\n", "400"),
	T("absolute, other scheme", "GET ftp://g/ HTTP/1.1\r\n" H "\r\n",
	    "400"),
	T("absolute without Host", "GET http://g/ HTTP/1.1\r\n\r\n", "400"),
	T("asterisk", "OPTIONS * HTTP/1.1\r\n" H "\r\n",
	    "OPTIONS * [*? @h] K {} <>"),
	T("asterisk for GET", "GET * HTTP/1.1\r\n" H "\r\n", "400"),
	T("asterisk and more", "OPTIONS *a HTTP/1.1\r\n" H "\r\n", "400"),
	T("CONNECT", "CONNECT h:443 HTTP/1.1\r\n" H "\r\n", "405"),
	T("CONNECT with a path", "CONNECT /a HTTP/1.1\r\n" H "\r\n", "405"),

	/* Host */
	T("no Host", GET "\r\n", "400"),
	T("two Hosts", GET H H "\r\n", "400"),
	T("two Hosts in HTTP/1.0", "GET / HTTP/1.0\r\n" H H "\r\n", "400"),
	T("no Host in HTTP/1.0", "GET / HTTP/1.0\r\n\r\n",
	    "GET / [/? @] C0 {} <>"),
	T("empty Host", GET "Host:\r\n\r\n", "GET / [/? @] K {} <>"),
	T("Host with a port", GET "host: a.b:80\r\n\r\n",
	    "GET / [/? @a.b:80] K {} <>"),
	T("Host with an empty port", GET "host: a.b:\r\n\r\n",
	    "GET / [/? @a.b:] K {} <>"),
	T("Host, IPv6", GET "Host: [::1]:80\r\n\r\n",
	    "GET / [/? @[::1]:80] K {} <>"),
	T("Host, IPv6 not closed", GET "Host: [::1\r\n\r\n", "400"),
	T("Host, IPv6 empty", GET "Host: []\r\n\r\n", "400"),
	T("Host, IPv6 and more", GET "Host: [::1]x\r\n\r\n", "400"),
	T("Host, IPv6 of other letters", GET "Host: [::g]\r\n\r\n", "400"),
	T("Host, two ports", GET "Host: a:1:2\r\n\r\n", "400"),
	T("Host, port too large", GET "Host: a:65536\r\n\r\n", "400"),
	T("Host, port negative", GET "Host: a:-1\r\n\r\n", "400"),
	T("Host, userinfo", GET "Host: u@h\r\n\r\n", "400"),
	T("Host, path", GET "Host: h/a\r\n\r\n", "400"),
	T("Host, list", GET "Host: a, b\r\n\r\n", "400"),
	T("Host, comma", GET "Host: a,b\r\n\r\n", "400"),
	T("Host, space", GET "Host: a b\r\n\r\n", "400"),
	T("Host, query", GET "Host: a?b\r\n\r\n", "400"),
	T("Host, backslash", GET "Host: a\\b\r\n\r\n", "400"),
	T("Host, UTF-8", GET "Host: \xc3\xa4\r\n\r\n", "400"),

	/* field lines */
	T("space before the colon", GET H "A : b\r\n\r\n", "400"),
	T("tab before the colon", GET H "A\t: b\r\n\r\n", "400"),
	T("no colon", GET H "A\r\n\r\n", "400"),
	T("no name", GET H ": b\r\n\r\n", "400"),
	T("obs-fold, space", GET H "A: b\r\n c\r\n\r\n", "400"),
	T("obs-fold, tab", GET H "A: b\r\n\tc\r\n\r\n", "400"),
	T("fold of nothing", GET H "A: b\r\n \r\n\r\n", "400"),
	T("space before the first field", GET " " H "\r\n", "400"),
	T("bare LF after a field", GET "Host: h\n\r\n", "400"),
	T("bare LF at the end", GET H "\n", "400"),
	T("bare CR in a value", GET H "A: b\rc\r\n\r\n", "400"),
	T("bare CR before CR LF", GET H "A: b\r\r\n\r\n", "400"),
	T("bare CR in a name", GET H "A\rB: b\r\n\r\n", "400"),
	T("NUL in a value", GET H "A: b\0c\r\n\r\n", "400"),
	T("NUL in a name", GET H "A\0: b\r\n\r\n", "400"),
	T("vertical tab in a value", GET H "A: b\x0b\r\n\r\n", "400"),
	T("form feed before a value",
	    GET H "A:\x0c"
		  "b\r\n\r\n",
	    "400"),
	T("DEL in a value", GET H "A: \x7f\r\n\r\n", "400"),
	T("escape in a value", GET H "A: \x1b[1m\r\n\r\n", "400"),
	T("parentheses in a name", GET H "A(b): c\r\n\r\n", "400"),
	T("UTF-8 in a name", GET H "\xc3\xa4: c\r\n\r\n", "400"),
	T("brackets around a name", GET H "[A]: c\r\n\r\n", "400"),

	/* hop by hop */
	T("close", GET H "Connection: close\r\n\r\n", "GET / [/? @h] C {} <>"),
	T("close in a list", GET H "Connection: x, CLOSE\r\n\r\n",
	    "GET / [/? @h] C {} <>"),
	T("close and keep-alive", GET H "Connection: keep-alive, close\r\n\r\n",
	    "GET / [/? @h] C {} <>"),
	T("HTTP/1.0", "GET / HTTP/1.0\r\n" H "\r\n", "GET / [/? @h] C0 {} <>"),
	T("HTTP/1.0 keep-alive",
	    "GET / HTTP/1.0\r\n" H "Connection: Keep-Alive\r\n\r\n",
	    "GET / [/? @h] K0 {} <>"),
	T("hop-by-hop fields",
	    GET H "TE: trailers\r\nTrailer: a\r\nUpgrade: h2c\r\n"
		  "Keep-Alive: 5\r\nProxy-Connection: x\r\nA: b\r\n\r\n",
	    OK "A=b;} <>"),
	T("nominated fields",
	    GET H "A: b\r\nConnection: a , x\r\nX: y\r\nC: d\r\n\r\n",
	    OK "C=d;} <>"),
	T("nominated, two Connections",
	    GET H "connection: a\r\nA: b\r\n"
		  "CONNECTION:\tc\r\nC: d\r\n\r\n",
	    OK "} <>"),
	T("Connection of commas", GET H "Connection: ,,\r\nA: b\r\n\r\n",
	    OK "A=b;} <>"),
	T("upgrade is ignored",
	    GET H "Connection: Upgrade, HTTP2-Settings\r\n"
		  "Upgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n",
	    OK "} <>"),

	/* Expect */
	T("100-continue",
	    POST "Content-Length: 1\r\nExpect: 100-continue\r\n\r\nx",
	    "POST / [/? @h] KE {} <x>"),
	T("100-Continue",
	    POST "Content-Length: 1\r\nExpect: 100-Continue\r\n\r\nx",
	    "POST / [/? @h] KE {} <x>"),
	T("100-continue without a body", GET H "Expect: 100-continue\r\n\r\n",
	    OK "} <>"),
	T("100-continue in HTTP/1.0",
	    "POST / HTTP/1.0\r\nContent-Length: 1\r\n"
	    "Expect: 100-continue\r\n\r\nx",
	    "POST / [/? @] C0 {} <x>"),
	T("other expectation", GET H "Expect: 200-ok\r\n\r\n", "417"),
	T("two expectations", GET H "Expect: 100-continue\r\nExpect: x\r\n\r\n",
	    "417"),
	T("list of expectations", GET H "Expect: 100-continue, x\r\n\r\n",
	    "417"),

	/* lengths */
	T("length", POST "Content-Length: 3\r\n\r\nabc", POSTED "abc>"),
	T("length 0", POST "Content-Length: 0\r\n\r\n", POSTED ">"),
	T("length with zeros", POST "Content-Length: 003\r\n\r\nabc",
	    POSTED "abc>"),
	T("length short", POST "Content-Length: 3\r\n\r\nab", POSTED "ab"),
	T("length and the next", POST "Content-Length: 1\r\n\r\na" GET H "\r\n",
	    POSTED "a>" OK "} <>"),
	T("GET with a length", GET H "Content-Length: 1\r\n\r\na", OK "} <a>"),
	T("two lengths, equal",
	    POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", "400"),
	T("two lengths", POST "Content-Length: 1\r\ncontent-length: 2\r\n\r\na",
	    "400"),
	T("list of lengths, equal", POST "Content-Length: 1, 1\r\n\r\na",
	    "400"),
	T("list of lengths", POST "Content-Length: 1,2\r\n\r\na", "400"),
	T("length with a comma", POST "Content-Length: 1,\r\n\r\na", "400"),
	T("length +", POST "Content-Length: +1\r\n\r\na", "400"),
	T("length -", POST "Content-Length: -1\r\n\r\na", "400"),
	T("length -0", POST "Content-Length: -0\r\n\r\na", "400"),
	T("length hex", POST "Content-Length: 0x1\r\n\r\na", "400"),
	T("length of nothing", POST "Content-Length:\r\n\r\na", "400"),
	T("length with a space", POST "Content-Length: 1 1\r\n\r\na", "400"),
	T("length 1.0", POST "Content-Length: 1.0\r\n\r\na", "400"),
	T("length 1e1", POST "Content-Length: 1e1\r\n\r\na", "400"),
	T("length quoted", POST "Content-Length: \"1\"\r\n\r\na", "400"),
	T("length 2^63", POST "Content-Length: 9223372036854775808\r\n\r\na",
	    "400"),
	T("length 2^64+1", POST "Content-Length: 18446744073709551617\r\n\r\na",
	    "400"),
	T("length, vertical tab",
	    POST "Content-Length: \x0b"
		 "1\r\n\r\na",
	    "400"),
	T("length, space before the colon", POST "Content-Length : 1\r\n\r\na",
	    "400"),
	T("length, nominated",
	    POST "Connection: Content-Length\r\n"
		 "Content-Length: 1\r\n\r\na",
	    POSTED "a>"),

	/* codings */
	T("chunked", POST TE "\r\n3\r\nabc\r\n0\r\n\r\n", POSTED "abc>"),
	T("Chunked", POST "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
	    POSTED ">"),
	T("CL.TE", POST "Content-Length: 6\r\n" TE "\r\n0\r\n\r\nX", "400"),
	T("TE.CL", POST TE "Content-Length: 6\r\n\r\n0\r\n\r\nX", "400"),
	T("TE and length 0", POST TE "Content-Length: 0\r\n\r\n0\r\n\r\n",
	    "400"),
	T("TE in HTTP/1.0", "POST / HTTP/1.0\r\n" H TE "\r\n0\r\n\r\n", "400"),
	T("TE twice", POST TE TE "\r\n0\r\n\r\n", "400"),
	T("chunked, chunked",
	    POST "Transfer-Encoding: chunked, chunked\r\n\r\n", "400"),
	T("chunked, identity",
	    POST "Transfer-Encoding: chunked, identity\r\n\r\n", "400"),
	T("identity, chunked",
	    POST "Transfer-Encoding: identity, chunked\r\n\r\n", "501"),
	T("gzip, chunked", POST "Transfer-Encoding: gzip, chunked\r\n\r\n",
	    "501"),
	T("gzip", POST "Transfer-Encoding: gzip\r\n\r\n", "501"),
	T("identity", POST "Transfer-Encoding: identity\r\n\r\n", "501"),
	T("xchunked", POST "Transfer-Encoding: xchunked\r\n\r\n", "501"),
	T("chunked;q=1", POST "Transfer-Encoding: chunked;q=1\r\n\r\n", "501"),
	T("\"chunked\"", POST "Transfer-Encoding: \"chunked\"\r\n\r\n", "400"),
	T("chunked,", POST "Transfer-Encoding: chunked,\r\n\r\n", "400"),
	T(",chunked", POST "Transfer-Encoding: ,chunked\r\n\r\n", "400"),
	T("coding of nothing", POST "Transfer-Encoding:\r\n\r\n", "400"),
	T("coding split over two fields",
	    POST TE "Transfer-Encoding: x\r\n\r\n", "400"),
	T("TE, space before the colon",
	    POST "Transfer-Encoding : chunked\r\n\r\n", "400"),
	T("TE, vertical tab",
	    POST "Transfer-Encoding: \x0b"
		 "chunked\r\n\r\n",
	    "400"),
	T("TE, folded", POST "Transfer-Encoding:\r\n chunked\r\n\r\n", "400"),
	T("TE, bare LF hides a field",
	    POST "A: b\nTransfer-Encoding: chunked\r\n\r\n", "400"),
	T("TE, bare CR hides a field",
	    POST "A: b\rTransfer-Encoding: chunked\r\n\r\n", "400"),
	T("TE, NUL", POST "Transfer-Encoding: chunked\0\r\n\r\n", "400"),
	T("TE, underscore is another field",
	    POST "Transfer_Encoding: chunked\r\n\r\n",
	    "POST / [/? @h] K {Transfer_Encoding=chunked;} <>"),

	/* chunks */
	T("chunks", POST TE "\r\n1\r\na\r\n00a\r\n0123456789\r\n0\r\n\r\n",
	    POSTED "a0123456789>"),
	T("chunk sizes in hex",
	    POST TE "\r\nA\r\n0123456789\r\nb\r\n0123456789a\r\n"
		    "000\r\n\r\n",
	    POSTED "01234567890123456789a>"),
	T("chunk extension", POST TE "\r\n1;a=b;c=\"d e\"\r\nx\r\n0;z\r\n\r\n",
	    POSTED "x>"),
	T("trailers", POST TE "\r\n0\r\nA: b\r\nX-Y:\r\n\r\n", POSTED ">"),
	T("trailers and the next",
	    POST TE "\r\n0\r\nHost: x\r\n\r\n" GET H "\r\n",
	    POSTED ">" OK "} <>"),
	T("no chunk yet", POST TE "\r\n", POSTED ""),
	T("no size", POST TE "\r\n\r\n", POSTED "!bad"),
	T("size with a space before", POST TE "\r\n 1\r\nx", POSTED "!bad"),
	T("size with a space behind", POST TE "\r\n1 \r\nx", POSTED "!bad"),
	T("size with a tab behind", POST TE "\r\n1\t;a\r\nx", POSTED "!bad"),
	T("size 0x1", POST TE "\r\n0x1\r\nx", POSTED "!bad"),
	T("size +1", POST TE "\r\n+1\r\nx", POSTED "!bad"),
	T("size -1", POST TE "\r\n-1\r\nx", POSTED "!bad"),
	T("size g", POST TE "\r\ng\r\nx", POSTED "!bad"),
	T("size of 16 digits", POST TE "\r\n0000000000000001\r\nx\r\n0\r\n\r\n",
	    POSTED "x>"),
	T("size of 17 digits", POST TE "\r\n00000000000000001\r\nx",
	    POSTED "!bad"),
	T("size 2^63", POST TE "\r\n8000000000000000\r\nx", POSTED "!bad"),
	T("size 2^64-1", POST TE "\r\nffffffffffffffff\r\nx", POSTED "!bad"),
	T("size 2^63-1", POST TE "\r\n7fffffffffffffff\r\nx", POSTED "x"),
	T("size, bare LF", POST TE "\r\n1\nx", POSTED "!bad"),
	T("size, bare CR", POST TE "\r\n1\rx", POSTED "!bad"),
	T("extension, bare LF", POST TE "\r\n1;a\nx", POSTED "!bad"),
	T("extension, bare CR", POST TE "\r\n1;a\rb\r\nx", POSTED "!bad"),
	T("extension, NUL", POST TE "\r\n1;a\0\r\nx", POSTED "!bad"),
	T("chunk too long", POST TE "\r\n1\r\nxy\r\n", POSTED "x!bad"),
	T("chunk too short", POST TE "\r\n3\r\nx\r\n0\r\n\r\n",
	    POSTED "x\r\n!bad"),
	T("chunk ended by LF", POST TE "\r\n1\r\nx\n", POSTED "x!bad"),
	T("chunk ended by CR x", POST TE "\r\n1\r\nx\rx", POSTED "x!bad"),
	T("last chunk, bare LF", POST TE "\r\n0\n\n", POSTED "!bad"),
	T("end, bare LF", POST TE "\r\n0\r\n\n", POSTED "!bad"),
	T("end, CR x", POST TE "\r\n0\r\n\rx", POSTED "!bad"),
	T("trailer, bare LF", POST TE "\r\n0\r\nA: b\n\r\n", POSTED "!bad"),
	T("trailer, bare CR", POST TE "\r\n0\r\nA: b\rc\r\n\r\n",
	    POSTED "!bad"),
	T("trailer, folded", POST TE "\r\n0\r\nA: b\r\n c\r\n\r\n",
	    POSTED "!bad"),
	T("trailer, no colon", POST TE "\r\n0\r\nAb\r\n\r\n", POSTED "!bad"),
	T("trailer, no name", POST TE "\r\n0\r\n: b\r\n\r\n", POSTED "!bad"),
	T("trailer, space before the colon", POST TE "\r\n0\r\nA : b\r\n\r\n",
	    POSTED "!bad"),
	T("trailer, NUL", POST TE "\r\n0\r\nA: \0\r\n\r\n", POSTED "!bad"),
	T("a request where a trailer belongs",
	    POST TE "\r\n0\r\nGET / HTTP/1.1\r\n" H "\r\n", POSTED "!bad"),

	/* limits: 200 a line, 600 a head, 12 fields */
	T("target too long", "GET /" X100 X100 " HTTP/1.1\r\n" H "\r\n", "414"),
	T("target far too long", "GET /" X1000, "414"),
	T("method without end", X1000, "414"),
	T("line too long", GET H "A: " X100 X100 "\r\n\r\n", "431"),
	T("line without end", GET H "A: " X1000, "431"),
	T("line too long, bare LF", GET H "A: " X1000 "\n", "431"),
	T("head too long",
	    GET H "A: " X100 X10 "\r\nB: " X100 X10 "\r\nC: " X100 X10
		  "\r\nD: " X100 X10 "\r\nE: " X100 X10 "\r\nF: " X100 X10
		  "\r\n\r\n",
	    "431"),
	T("twelve fields",
	    GET H "1:\r\n2:\r\n3:\r\n4:\r\n5:\r\n6:\r\n7:\r\n8:\r\n9:"
		  "\r\n10:\r\n11:\r\n\r\n",
	    OK "1=;2=;3=;4=;5=;6=;7=;8=;9=;10=;11=;} <>"),
	T("thirteen fields",
	    GET H "1:\r\n2:\r\n3:\r\n4:\r\n5:\r\n6:\r\n7:\r\n8:\r\n"
		  "9:\r\n10:\r\n11:\r\n12:\r\n\r\n",
	    "431"),
};

#define R11 "HTTP/1.1 200 OK\r\n"
static const struct test replies[] = {
	T("length", R11 "Content-Length: 2\r\nA: b\r\n\r\nhi",
	    "200 2 K {A=b;} <hi>"),
	T("chunked", R11 TE "\r\n2\r\nhi\r\n0\r\n\r\n", "200 -1 K {} <hi>"),
	T("to the close", R11 "\r\nhi", "200 -1 C to close {} <hi"),
	T("HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nhi", "200 -1 C to close {} <hi"),
	T("HTTP/1.0 with a length",
	    "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
	    "200 2 C {} <hi>"),
	T("HTTP/1.0 keep-alive",
	    "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n"
	    "Content-Length: 2\r\n\r\nhi",
	    "200 2 K {} <hi>"),
	T("HTTP/1.0 chunked",
	    "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" TE "\r\n0\r\n\r\n",
	    "200 -1 C {} <>"),
	T("close", R11 "Connection: close\r\nContent-Length: 0\r\n\r\n",
	    "200 0 C {} <>"),
	T("no reason", "HTTP/1.1 204\r\n\r\n", "204 -1 K {} <>"),
	T("empty reason", "HTTP/1.1 204 \r\n\r\n", "204 -1 K {} <>"),
	T("204 with a length", "HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n",
	    "204 5 K {} <>"),
	T("304 with a length", "HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n",
	    "304 5 K {} <>"),
	T("100 then 200",
	    "HTTP/1.1 100 Continue\r\n\r\n" R11 "Content-Length: 0\r\n\r\n",
	    "100 -1 K {} <>200 0 K {} <>"),
	T("hop-by-hop",
	    R11 "Connection: X\r\nX: y\r\nKeep-Alive: 1\r\nB: c\r\n"
		"Content-Length: 0\r\n\r\n",
	    "200 0 K {B=c;} <>"),
	T("TE and CL: TE wins", R11 TE "Content-Length: 9\r\n\r\n0\r\n\r\n",
	    "200 -1 C {} <>"),
	T("two equal lengths",
	    R11 "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
	    "200 1 K {} <x>"),
	T("list of equal lengths", R11 "Content-Length: 1, 1\r\n\r\nx",
	    "200 1 K {} <x>"),
	T("two lengths", R11 "Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
	    "502"),
	T("list of lengths", R11 "Content-Length: 1, 2\r\n\r\nx", "502"),
	T("bad length", R11 "Content-Length: x\r\n\r\n", "502"),
	T("gzip, chunked", R11 "Transfer-Encoding: gzip, chunked\r\n\r\n",
	    "502"),
	T("identity", R11 "Transfer-Encoding: identity\r\n\r\n", "502"),
	T("chunk extensions, each of its own",
	    R11 TE "\r\n1;" X1000 X1000 X1000 "\r\nx\r\n1;" X1000 X1000 X1000
		   "\r\ny\r\n0\r\n\r\n",
	    "200 -1 K {} <xy>"),
	T("chunk extension too long",
	    R11 TE "\r\n1;" X1000 X1000 X1000 X1000 X100 "\r\nx\r\n0\r\n\r\n",
	    "200 -1 K {} <!limit"),
	T("status 99", "HTTP/1.1 099 x\r\n\r\n", "502"),
	T("status 600", "HTTP/1.1 600 x\r\n\r\n", "502"),
	T("status 20", "HTTP/1.1 20 x\r\n\r\n", "502"),
	T("status 2000", "HTTP/1.1 2000 x\r\n\r\n", "502"),
	T("status with a sign", "HTTP/1.1 +20 x\r\n\r\n", "502"),
	T("two spaces", "HTTP/1.1  200 x\r\n\r\n", "502"),
	T("no status", "HTTP/1.1\r\n\r\n", "502"),
	T("NUL in the reason", "HTTP/1.1 200 a\0b\r\n\r\n", "502"),
	T("ICY", "ICY 200 OK\r\n\r\n", "502"),
	T("HTML", "<html>\r\n", "502"),
	T("HTTP/2", "HTTP/2 200\r\n\r\n", "400"),
	T("HTTP/2.0", "HTTP/2.0 200\r\n\r\n", "505"),
	T("empty line before", "\r\n" R11 "\r\n", "502"),
	T("folded", R11 "A: b\r\n c\r\n\r\n", "400"),
	T("bare LF", "HTTP/1.1 200 OK\n\n", "400"),
};

static void
run(const struct test *t, bool reply)
{
	struct h1_feed whole, f;
	struct view in = view_of(t->in, t->n), got;
	bool refused = t->want[0] >= '4' && t->want[0] <= '5' &&
	    strchr(t->want, '{') == NULL;
	bool good = true;
	size_t a;

	feed_init(&whole, reply);
	feed_cut(&whole, in, 0, 0);
	got = buf_view(&whole.out);
	if (refused)
		got = view_sub(got, 0, 3);
	tap_is_mem(got.p, got.n, t->want, strlen(t->want), t->name);
	for (a = 0; good && a <= t->n; a++) {
		feed_init(&f, reply);
		feed_cut(&f, in, a, a);
		good = view_eq(buf_view(&f.out), buf_view(&whole.out));
		if (!good)
			tap_diag("cut at %zu: %.*s", a,
			    VIEW_ARG(buf_view(&f.out)));
		feed_clear(&f);
	}
	feed_init(&f, reply);
	for (a = 0; a < t->n; a++)
		feed_piece(&f, view_sub(in, a, 1));
	good = good && view_eq(buf_view(&f.out), buf_view(&whole.out));
	tap_ok(good, "%s: the same in pieces", t->name);
	feed_clear(&f);
	feed_clear(&whole);
}

/* Bounds that a table cannot show: of all extensions, of all trailers. */
static void
test_bounds(void)
{
	struct h1_framing fr = { .kind = H1_BODY_CHUNKED };
	struct h1_body b;
	struct view in, data;
	size_t n = 0;
	int rc = H1_BODY_MORE;

	h1_body_init(&b, &fr, false);
	while (rc >= 0 && n++ < 10000) {
		in = VIEW("1;abcdefgh\r\nx\r\n");
		while ((rc = h1_body_next(&b, &in, 10, &data)) == H1_BODY_DATA)
			;
	}
	tap_is_int(rc, SP_E_LIMIT, "all extensions together are bounded");
	tap_is_int((long long)n, H1_EXTENSION_MAX / 8 + 1, "at 4 KiB");
	h1_body_init(&b, &fr, false);
	in = VIEW("0\r\n");
	rc = h1_body_next(&b, &in, 10, &data);
	for (n = 0; rc >= 0 && n < 10000; n++) {
		in = VIEW("Ab: cd\r\n");
		rc = h1_body_next(&b, &in, 10, &data);
	}
	tap_is_int(rc, SP_E_LIMIT, "all trailers together are bounded");
	h1_body_init(&b, &fr, false);
	in = VIEW("5\r\nabcde\r\n0\r\n\r\nrest");
	tap_is_int(h1_body_next(&b, &in, 0, &data), H1_BODY_FULL, "no window");
	tap_is_int(h1_body_next(&b, &in, 2, &data), H1_BODY_DATA, "a window");
	tap_is_mem(data.p, data.n, "ab", 2, "as much as fits");
	tap_is_int(h1_body_next(&b, &in, 0, &data), H1_BODY_FULL, "used up");
	tap_is_int(h1_body_next(&b, &in, 9, &data), H1_BODY_DATA, "the rest");
	tap_is_int(h1_body_next(&b, &in, 0, &data), H1_BODY_END,
	    "the end needs no window");
	tap_is_mem(in.p, in.n, "rest", 4, "what follows stays");
}

static void
test_head(void)
{
	struct h1_feed f;

	feed_init(&f, true);
	f.scan.head_request = true;
	feed_cut(&f, VIEW(R11 "Content-Length: 5\r\n\r\n"), 3, 9);
	tap_is_mem(buf_view(&f.out).p, buf_len(&f.out), "200 5 K {} <>", 13,
	    "a reply to HEAD has no body");
	feed_clear(&f);
}

static void
test_nomem(void)
{
	struct view head = VIEW(GET H "A: b\r\n\r\n");
	struct h1_scan s = { 0 };
	const struct h1_scan_limits limits = { 100, 100, 10 };
	struct h1_fault fault;
	struct h1_framing fr;
	struct head_request rq = { 0 };
	struct head_reply rp;
	struct arena *a;
	size_t n;

	tap_is_int(h1_parse_scan(&s, head, &limits, &n, &fault), 0, "scan");
	a = arena_new(10);
	tap_is_int(h1_parse_request(head, &s, a, &rq, &fr, &fault), SP_E_NOMEM,
	    "no memory for the fields of a request");
	head = VIEW(R11 "A: b\r\n\r\n");
	tap_is_int(h1_parse_reply(head, &s, a, &rp, &fr, &fault), SP_E_NOMEM,
	    "no memory for the fields of a reply");
	arena_free(a);
}

/* ---- writing -------------------------------------------------------------- */

static void
is_buf(struct buf *b, const char *want, const char *what)
{
	tap_is_mem(buf_view(b).p, buf_len(b), want, strlen(want), what);
	buf_reset(b, 0);
}

/* What a client is told names the directive, an upstream's reply none. */
static void
test_words(void)
{
	static const struct {
		const char *in;
		bool reply;
		const char *what;
	} words[] = {
		{ "GET / HTTP/2.0\r\n", false, "begins with its preface" },
		{ "GET / HTTP/3.0\r\n", false, "HTTP/1.0 and HTTP/2 are" },
		{ "GET /" X100, false, "see header_line_max" },
		{ "GET / HTTP/1.1\r\nA: " X100, false, "see header_line_max" },
		{ "GET / HTTP/1.1\r\nA: 23456789\r\nB: " X100, false,
		    "see header_max" },
		{ "GET / HTTP/1.1\r\nA:\r\nB:\r\nC:\r\n", false,
		    "see header_max_n" },
		{ "HTTP/1.1 200 OK\r\nA: " X100, true, "too large" },
		{ "HTTP/1.1 200 OK\r\nA:\r\nB:\r\nC:\r\n", true,
		    "too many header fields" },
	};
	const struct h1_scan_limits limits = { 40, 60, 2 };
	size_t i, n;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct h1_scan s = { .reply = words[i].reply };
		struct h1_fault fault = { 0, "" };

		(void)!h1_parse_scan(&s, view_str(words[i].in), &limits, &n,
		    &fault);
		tap_ok(strstr(fault.what, words[i].what) != NULL, "says \"%s\"",
		    fault.what);
		tap_ok(!words[i].reply || strstr(fault.what, "see ") == NULL,
		    "as far as it is the client's");
	}
}

/* Request lines of every form, and what is refused in one. */
static void
write_lines(struct h1_write_request rq)
{
	struct buf b = BUF_INIT(4096);

	rq.base = VIEW("/v1");
	tap_is_int(h1_write_request_line(&b, &rq), 0, "line");
	is_buf(&b, "GET /v1/x HTTP/1.1\r\nHost: h:1\r\n", "with a base");
	rq.target = VIEW_NONE;
	tap_is_int(h1_write_request_line(&b, &rq), 0, "line");
	is_buf(&b, "GET /v1 HTTP/1.1\r\nHost: h:1\r\n", "the base alone");
	rq.base = VIEW_NONE;
	tap_is_int(h1_write_request_line(&b, &rq), 0, "line");
	is_buf(&b, "GET / HTTP/1.1\r\nHost: h:1\r\n", "neither");
	rq.target = VIEW("?q");
	tap_is_int(h1_write_request_line(&b, &rq), 0, "line");
	is_buf(&b, "GET /?q HTTP/1.1\r\nHost: h:1\r\n", "a query alone");
	rq.base = VIEW("/v 1");
	tap_is_int(h1_write_request_line(&b, &rq), SP_E_SYNTAX, "bad base");
	rq.base = VIEW_NONE;
	rq.target = VIEW("/x y");
	tap_is_int(h1_write_request_head(&b, &rq), SP_E_SYNTAX, "bad target");
	rq.target = VIEW("/x");
	rq.host = VIEW("h\r\n");
	tap_is_int(h1_write_request_head(&b, &rq), SP_E_SYNTAX, "bad host");
	rq.host = VIEW_NONE;
	tap_is_int(h1_write_request_head(&b, &rq), SP_E_SYNTAX, "no host");
	rq.host = VIEW("h");
	rq.method = VIEW("G T");
	tap_is_int(h1_write_request_head(&b, &rq), SP_E_SYNTAX, "bad method");
	buf_clear(&b);
}

static void
test_write(void)
{
	struct buf b = BUF_INIT(4096);
	struct head_field v[4] = { { VIEW("A"), VIEW("b") },
		{ VIEW("content-LENGTH"), VIEW("9") },
		{ VIEW("Connection"), VIEW("x") },
		{ VIEW("Date"), VIEW("now") } };
	struct head_reply head = { .status = 200,
		.content_length = 5,
		.fields = { NULL, v, 3, 4 } };
	struct h1_write_reply form = { .date = VIEW("D"), .close = true };
	struct h1_write_request rq = { .method = VIEW("POST"),
		.target = VIEW("/x"),
		.host = VIEW("h:1"),
		.fields = &head.fields };
	struct view pieces[3] = { VIEW("abc"), VIEW(""),
		VIEW("0123456789abcdef") };
	char date[H1_WRITE_DATE_BYTES];

	tap_is_int(h1_write_reply_head(&b, &head, &form), 0, "head");
	is_buf(&b,
	    R11 "A: b\r\nDate: D\r\nContent-Length: 5\r\n"
		"Connection: close\r\n\r\n",
	    "framing fields are written, never copied");
	head.fields.n = 4;
	form = (struct h1_write_reply){ .chunked = true, .keep_alive = true };
	tap_is_int(h1_write_reply_head(&b, &head, &form), 0, "head");
	is_buf(&b,
	    R11 "A: b\r\nDate: now\r\nTransfer-Encoding: chunked\r\n"
		"Connection: keep-alive\r\n\r\n",
	    "chunked");
	tap_is_int(h1_write_request_head(&b, &rq), 0, "request");
	is_buf(&b,
	    "POST /x HTTP/1.1\r\nHost: h:1\r\nA: b\r\nDate: now\r\n"
	    "Accept-Encoding: identity\r\nContent-Length: 0\r\n\r\n",
	    "a request");
	v[0].name = VIEW("accept-encoding");
	v[1].name = VIEW("Expect");
	v[2].name = VIEW("HOST");
	rq.method = VIEW("GET");
	tap_is_int(h1_write_request_head(&b, &rq), 0, "request");
	is_buf(&b,
	    "GET /x HTTP/1.1\r\nHost: h:1\r\naccept-encoding: b\r\n"
	    "Date: now\r\n\r\n",
	    "Expect and Host are not copied");
	write_lines(rq);
	tap_is_int(h1_write_chunk(&b, pieces, 3), 0, "chunk");
	is_buf(&b, "13\r\nabc0123456789abcdef\r\n", "one chunk of all pieces");
	tap_is_int(h1_write_chunk(&b, pieces + 1, 1), 0, "empty chunk");
	is_buf(&b, "", "no chunk: it would be the last");
	h1_write_date(UINT64_C(784111777) * 1000000, date);
	tap_is_str(date, "Sun, 06 Nov 1994 08:49:37 GMT", "date");
	mem_fail_after(1, 1);
	buf_clear(&b);
	tap_is_int(h1_write_reply_head(&b, &head, &form), SP_E_NOMEM,
	    "no memory");
	tap_is_int(h1_write_chunk(&b, pieces, 1), SP_E_NOMEM, "no memory");
	mem_fail_after(0, 0);
	b.max = 40;
	tap_is_int(h1_write_reply_head(&b, &head, &form), SP_E_LIMIT,
	    "no room");
	tap_is_int((long long)buf_len(&b), 0, "nothing of it stays");
	buf_clear(&b);
}

static void
test_fields(void)
{
	struct arena *a = arena_new(100000);
	struct head_fields f;
	int i, rc = 0;

	head_fields_init(&f, a);
	tap_is_int(head_add(&f, VIEW("A b"), VIEW("c")), SP_E_SYNTAX, "name");
	tap_is_int(head_add(&f, VIEW(""), VIEW("c")), SP_E_SYNTAX, "no name");
	tap_is_int(head_add(&f, VIEW("A"), VIEW("c\r\nX: y")), SP_E_SYNTAX,
	    "CR");
	tap_is_int(head_add(&f, VIEW("A"), view_of("c\0", 2)), SP_E_SYNTAX,
	    "NUL");
	for (i = 0; rc == 0 && i < 50; i++)
		rc =
		    head_add(&f, i & 1 ? VIEW("odd") : VIEW("Even"), VIEW("v"));
	tap_is_int(rc, 0, "fifty fields");
	tap_is_int((long long)head_count(&f, VIEW("ODD")), 25, "counted");
	tap_is_int((long long)head_del(&f, VIEW("even")), 25, "removed");
	tap_is_int((long long)f.n, 25, "the others stay");
	tap_ok(head_get(&f, VIEW("Even")).p == NULL, "gone");
	tap_ok(view_eq(head_get(&f, VIEW("oDD")), VIEW("v")), "there");
	tap_ok(head_list_has(VIEW("a , CLOSE,b"), VIEW("close")), "list");
	tap_ok(!head_list_has(VIEW("closed"), VIEW("close")), "no prefix");
	tap_ok(!head_list_has(VIEW_NONE, VIEW("close")), "empty list");
	tap_ok(head_is_hop(VIEW("TE")) && !head_is_hop(VIEW("Date")), "hop");
	tap_is_str(head_reason(404), "Not Found", "reason");
	tap_is_str(head_reason(299), "", "no reason");
	f.arena = NULL;
	tap_is_int(head_add(&f, VIEW("A"), VIEW("b")), SP_E_NOMEM, "no arena");
	arena_free(a);
}

int
main(void)
{
	size_t i;

	for (i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
		run(&requests[i], false);
	for (i = 0; i < sizeof(replies) / sizeof(replies[0]); i++)
		run(&replies[i], true);
	test_bounds();
	test_head();
	test_nomem();
	test_write();
	test_fields();
	test_words();
	return tap_done();
}
