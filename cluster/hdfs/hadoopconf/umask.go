package hadoopconf

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// umaskProperty is the umask of Hadoop clients for new files and folders.
const umaskProperty = "fs.permissions.umask-mode"

// privateUmask gives access to the owner only. Hadoop's default, 022, lets everyone read.
const privateUmask fs.FileMode = 0o077

// symbolicUmask matches one clause: classes, an operator (its last character counts) and
// permissions.
var symbolicUmask = regexp.MustCompile(`^\s*([ugoa]*)([+=-]*[+=-])([rwxX][rwxX-]*)?\s*$`)

// Umask returns the permissions that new files and folders do not get, according to
// fs.permissions.umask-mode: an octal number, or symbols for the permissions that they get,
// such as u=rwx,g=rx,o=. If the property is not set, only the owner gets any.
//
// Symbols are interpreted as in Hadoop, with one exception: if no clause sets the owner's
// permissions with =, Hadoop removes the owner's permissions that no clause grants. Files would
// then be useless to their owner, so + and - modify the owner's full permissions here.
func (c *Conf) Umask() (fs.FileMode, error) {
	text := c.Get(umaskProperty)
	if text == "" {
		return privateUmask, nil
	}
	if n, err := strconv.ParseUint(text, 8, 16); err == nil && n <= 0o1777 { // the sticky bit does not apply to files
		return fs.FileMode(n & 0o777), nil
	}
	mask, clauses := privateUmask, 0
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue // as in Hadoop: repeated and trailing commas are allowed
		}
		m := symbolicUmask.FindStringSubmatch(part)
		if m == nil || m[2] != "=" && strings.Contains(m[3], "-") {
			return 0, badUmask(text)
		}
		mask = applyUmaskClause(mask, m[1], m[2][len(m[2])-1], m[3])
		clauses++
	}
	if clauses == 0 {
		return 0, badUmask(text)
	}
	return mask, nil
}

// applyUmaskClause returns the mask after one clause. As in Hadoop, the last clause for a class
// replaces earlier ones; + and - do not accumulate.
func applyUmaskClause(mask fs.FileMode, classes string, operator byte, permissions string) fs.FileMode {
	var named fs.FileMode
	for _, r := range permissions {
		named |= map[rune]fs.FileMode{'r': 4, 'w': 2, 'x': 1, 'X': 1}[r]
	}
	classes = strings.ReplaceAll(classes, "a", "")
	if classes == "" { // a, or none
		classes = "ugo"
	}
	for _, class := range classes {
		shift := map[rune]int{'u': 6, 'g': 3, 'o': 0}[class]
		granted := named
		switch before := 7 &^ (privateUmask >> shift); operator {
		case '+':
			granted = before | named
		case '-':
			granted = before &^ named
		}
		mask = mask&^(7<<shift) | (7&^granted)<<shift
	}
	return mask
}

func badUmask(text string) error {
	return fmt.Errorf("%s is %q in Hadoop's configuration: want an octal number like 027, "+
		"or symbols like u=rwx,g=rx,o= or u=rwx,g+rx,o-rwx", umaskProperty, text)
}
