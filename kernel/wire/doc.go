// Package wire implements the Jupyter message format
// (https://jupyter-client.readthedocs.io/en/stable/messaging.html): encoding and decoding of
// frames, signatures, and the contents that a kernel reads or sends. It does not use sockets.
package wire
