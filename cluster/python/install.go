package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// InstallCommand returns the words of a shell command that installs packages for an interpreter; their names follow.
// It is a command of the interpreter's pip, or of uv if uv made the environment without pip.
func InstallCommand(interpreter string) string { return packageCommand(interpreter, "install") }

// UninstallCommand returns the words of a shell command that removes packages; their names follow.
func UninstallCommand(interpreter string) string { return packageCommand(interpreter, "uninstall") }

func packageCommand(interpreter, verb string) string {
	if fromUV(interpreter) {
		return "uv pip " + verb + " --python " + ShellQuoted(interpreter)
	}
	return ShellQuoted(interpreter) + " -m pip " + verb
}

// fromUV reports whether an interpreter belongs to an environment that uv made and that has no pip.
func fromUV(interpreter string) bool {
	path, err := exec.LookPath(interpreter)
	if err != nil {
		return false
	}
	prefix := filepath.Dir(filepath.Dir(path)) // not the target of a link, which is outside of the environment
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

// ShellQuoted returns a word, quoted for a shell if needed.
func ShellQuoted(word string) string {
	if word == "" || strings.ContainsAny(word, " \t\n'\"$`\\(){}[]&;|<>*?~#!") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}
