package python

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// OfProcess returns the interpreter that runs a process of this user, by a path in its environment; "" if that is not
// known, or it is no Python. A process that was started as `python -m jupyterlab` tells no path: it is sought on the
// PATH that the process was started with. /proc/PID/exe is only compared, because a link leads from an environment to it.
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

// foldersOf returns the folders in which the word that started a process may be a program.
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
