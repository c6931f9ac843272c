package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// versionsTimeout bounds the run of an interpreter that prints the versions of packages.
const versionsTimeout = 30 * time.Second

// versionsProgram prints the versions of packages, without importing them.
const versionsProgram = `import json,sys
from importlib import metadata,util
def v(n):
    for d in (n,n+"-cpu",n+"-intel"):
        try: return metadata.version(d)
        except metadata.PackageNotFoundError: pass
    return "installed" if util.find_spec(n.replace("-","_")) else ""
print(json.dumps({"python":sys.version.split()[0],"prefix":sys.prefix,**{n:v(n) for n in sys.argv[1:]}}))`

// Versions asks an interpreter for its own version (key "python"), the folder below which it is installed (key
// "prefix") and the versions of packages; "" is the version of a package that it does not have. The interpreter's
// path must be absolute, because the interpreter runs in another folder.
func Versions(ctx context.Context, interpreter string, packages ...string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionsTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, append([]string{"-c", versionsProgram}, packages...)...)
	// The working directory is the first folder on the path of python -c. A json.py in the user's folder would shadow
	// the standard library, and one in a folder that all users may write would be another user's code.
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "PYTHONSAFEPATH=1")
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s did not list its packages within %s", interpreter, versionsTimeout)
	case err != nil:
		return nil, fmt.Errorf("%s cannot list its packages: %w%s", interpreter, err, LastLine(err))
	}
	found := map[string]string{}
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, fmt.Errorf("%s printed something else than its packages (%w): a sitecustomize or .pth file may print",
			interpreter, err)
	}
	return found, nil
}

// LastLine returns the last line that a program wrote to its standard error before exec.Cmd.Output returned err, in a
// form to put after the error; "" if there is none.
func LastLine(err error) string {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last
	}
	return ""
}
