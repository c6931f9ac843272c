// Package jupyterext carries what JupyterLab needs of tfcluster and writes it where
// Jupyter looks: the built JupyterLab extension beside this file, a kernelspec, and the
// server's entry for jupyter-server-proxy. Nothing is installed into Jupyter's Python.
package jupyterext
