// Package tensorboard runs TensorBoard for a cluster and brings it into the
// notebook: a process of its own that listens on a unix socket only, a reverse proxy
// that demands a token in the path and strips the browser's credentials, and the
// broker that stands behind jupyter-server-proxy. It knows nothing of clusters.
package tensorboard
