// Package tensorboard runs TensorBoard for a cluster and serves it to the notebook: a process
// that listens on a unix socket only, a reverse proxy that requires a token in the path and
// removes the browser's credentials, and the broker behind jupyter-server-proxy. It does not
// depend on clusters.
package tensorboard
