// Package lab runs JupyterLab for a test and uses its notebooks in a browser: it checks the visible output,
// failed requests, and the console's errors. It needs the project's Python environment, Node, Chromium and
// the modules in this folder (npm ci). If one is missing, the test is skipped with a message.
package lab
