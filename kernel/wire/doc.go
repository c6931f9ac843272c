// Package wire is the Jupyter message format: frames to messages and back, signatures,
// and the contents a kernel reads or makes
// (https://jupyter-client.readthedocs.io/en/stable/messaging.html). It has no sockets.
package wire
