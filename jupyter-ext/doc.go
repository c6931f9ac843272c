// Package jupyterext contains the files that JupyterLab needs for tfcluster, and installs them into
// Jupyter's folders: the built JupyterLab extension in this folder, a kernelspec, and the server's entry
// for jupyter-server-proxy. Nothing is installed into Jupyter's Python environment.
package jupyterext
