package hadoopconf

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// umaskProperty is what Hadoop's clients create files and folders by.
const umaskProperty = "fs.permissions.umask-mode"

// privateUmask leaves a file to its owner. Hadoop's own default, 022, lets everybody read.
const privateUmask fs.FileMode = 0o077

var symbolicUmask = regexp.MustCompile(`^\s*([ugoa]+)=([rwxX-]*)\s*$`)

// Umask is which permissions new files and folders do not get: what
// fs.permissions.umask-mode says, as an octal number or as u=rwx,g=rx,o=; where it is not
// set, those of everybody but the owner.
func (c *Conf) Umask() (fs.FileMode, error) {
	text := c.Get(umaskProperty)
	if text == "" {
		return privateUmask, nil
	}
	if n, err := strconv.ParseUint(text, 8, 16); err == nil && n <= 0o1777 { // a sticky bit says nothing of files
		return fs.FileMode(n & 0o777), nil
	}
	mask := fs.FileMode(0o777)
	for part := range strings.SplitSeq(text, ",") {
		m := symbolicUmask.FindStringSubmatch(part)
		if m == nil {
			return 0, fmt.Errorf("%s is %q in Hadoop's configuration: want an octal number like 027, or u=rwx,g=rx,o=", umaskProperty, text)
		}
		var granted fs.FileMode
		for _, r := range m[2] {
			granted |= map[rune]fs.FileMode{'r': 4, 'w': 2, 'x': 1, 'X': 1}[r]
		}
		for _, who := range strings.ReplaceAll(m[1], "a", "ugo") {
			shift := map[rune]int{'u': 6, 'g': 3, 'o': 0}[who]
			mask = mask&^(7<<shift) | (7&^granted)<<shift
		}
	}
	return mask, nil
}
