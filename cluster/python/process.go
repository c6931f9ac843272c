package python

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// OfProcess returns the interpreter that runs a process of this user, by a path in its environment; "" if the path is
// not known, or the process is no Python. A process that was started as `python -m jupyterlab` has no path on its
// command line: it is sought on the process's own PATH. /proc/PID/exe is only compared, because it is the target of
// the links in environments.
func OfProcess(pid int) string {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return ""
	}
	first, _, _ := bytes.Cut(line, []byte{0})
	word := string(first)
	switch {
	case !strings.HasPrefix(filepath.Base(word), "python"):
		return ""
	case filepath.IsAbs(word):
		return word
	}
	executable, err := filepath.EvalSymlinks(filepath.Join(proc, "exe"))
	if err != nil {
		return ""
	}
	for _, dir := range foldersOf(proc, word) {
		path := filepath.Join(dir, word)
		if found, err := filepath.EvalSymlinks(path); err == nil && filepath.IsAbs(path) && found == executable {
			return path
		}
	}
	return ""
}

// foldersOf returns the folders that may contain the program of a process. word is the name by which it was started.
func foldersOf(proc, word string) []string {
	if strings.Contains(word, "/") {
		dir, err := os.Readlink(filepath.Join(proc, "cwd"))
		if err != nil {
			return nil
		}
		return []string{dir}
	}
	variables, err := os.ReadFile(filepath.Join(proc, "environ"))
	if err != nil {
		return nil
	}
	for v := range bytes.SplitSeq(variables, []byte{0}) {
		if path, ok := bytes.CutPrefix(v, []byte("PATH=")); ok {
			return filepath.SplitList(string(path))
		}
	}
	return nil
}
