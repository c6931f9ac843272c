package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// InstallCommand returns the words of a shell that install the packages which follow them for an interpreter: by its
// pip, or by uv, where uv made its environment without pip.
func InstallCommand(interpreter string) string { return packageCommand(interpreter, "install") }

// UninstallCommand returns the words of a shell that remove the packages which follow them.
func UninstallCommand(interpreter string) string { return packageCommand(interpreter, "uninstall") }

func packageCommand(interpreter, verb string) string {
	if fromUV(interpreter) {
		return "uv pip " + verb + " --python " + ShellQuoted(interpreter)
	}
	return ShellQuoted(interpreter) + " -m pip " + verb
}

// fromUV reports that an interpreter is that of an environment which uv made, and which has no pip.
func fromUV(interpreter string) bool {
	path, err := exec.LookPath(interpreter)
	if err != nil {
		return false
	}
	prefix := filepath.Dir(filepath.Dir(path)) // not where a link leads: out of the environment
	config, err := os.ReadFile(filepath.Join(prefix, "pyvenv.cfg"))
	if err != nil || !strings.Contains("\n"+string(config), "\nuv = ") {
		return false
	}
	versions, err := os.ReadDir(filepath.Join(prefix, "lib"))
	if err != nil {
		return false
	}
	for _, v := range versions {
		if _, err := os.Stat(filepath.Join(prefix, "lib", v.Name(), "site-packages", "pip")); err == nil {
			return false
		}
	}
	return true
}

// ShellQuoted is a word as a shell reads it.
func ShellQuoted(word string) string {
	if word == "" || strings.ContainsAny(word, " \t\n'\"$`\\(){}[]&;|<>*?~#!") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}
