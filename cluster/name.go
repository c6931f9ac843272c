package cluster

import (
	"fmt"
	"regexp"
	"sync"
)

var clusterName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
})

// CheckName says whether a cluster may be called so: the name becomes a folder.
func CheckName(name string) error {
	if !clusterName().MatchString(name) {
		return fmt.Errorf(
			"cluster name %q: want letters, digits, '.', '_' and '-', at most 63, beginning with a letter or digit", name)
	}
	return nil
}
