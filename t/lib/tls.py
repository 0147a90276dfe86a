"""Certificates of a test's own, and clients that trust them."""
import os
import ssl
import subprocess


def certificate(folder, name):
    """A self-signed one, and its key, as files."""
    cert, key = (os.path.join(folder, f"{name}.{x}") for x in ("pem", "key"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
         f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1",
         "-keyout", key, "-out", cert], check=True, capture_output=True)
    os.chmod(key, 0o600)
    return cert, key


def wrapper(cert, *protocols):
    """Gives a connected socket TLS, with those protocols offered by ALPN."""
    ctx = ssl.create_default_context(cafile=cert)
    if protocols:
        ctx.set_alpn_protocols(list(protocols))
    return lambda s: ctx.wrap_socket(s, server_hostname="127.0.0.1")
