// Package lab runs a JupyterLab for a test and looks at notebooks in it with a browser:
// what the user sees, which requests fail, what the console says. It needs the project's
// Python environment, Node, Chromium and the modules in this folder (npm ci); where one
// is missing, a test is skipped and says which.
package lab
