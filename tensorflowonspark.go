package main

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/python"
)

const (
	// namesPackage is the package that gives the modules of tfcluster.tfos TensorFlowOnSpark's names.
	namesPackage = "tensorflowonspark"
	// namesMark is in the package's first file, and in that of no other package.
	namesMark = "tfcluster install --tensorflowonspark"
	// namesDistribution is what pip calls it, but for "-" instead of "_".
	namesDistribution = "tfcluster_tensorflowonspark"
)

// realPackage is where an interpreter finds something named tensorflowonspark: the package, which may be the one of
// installNames, and TensorFlowOnSpark's distribution; "" if there is none.
type realPackage struct{ Package, Distribution string }

// namesFolder returns the folder for the package tensorflowonspark: beside the package tfcluster that pip installed
// for this interpreter, otherwise where install writes tfcluster.
func (t *target) namesFolder(facts *pythonFacts) string {
	for _, dir := range []string{facts.Purelib, facts.UserSite} {
		content, err := os.ReadFile(filepath.Join(dir, "tfcluster", programFile))
		if !t.chosen && dir != "" && err == nil && pipOwns(content) {
			return dir
		}
	}
	return t.packages
}

// refuseNames says why the package tensorflowonspark is not to be written.
func (t *target) refuseNames() error {
	if t.namesDir == "" {
		return fmt.Errorf("--tensorflowonspark: %s is not the Python of --prefix, so its folder for packages is not known: "+
			"name that Python with --python PATH", t.python)
	}
	if at := t.real.Distribution; at != "" {
		return fmt.Errorf("--tensorflowonspark: TensorFlowOnSpark itself is installed in %s: to have tfcluster's modules "+
			"under its name, remove it (%s %s) and repeat the command", at, python.UninstallCommand(t.python), namesPackage)
	}
	found := t.real.Package
	if at := filepath.Join(t.namesDir, namesPackage); found == "" {
		if _, err := os.Lstat(at); err == nil {
			found = at // the interpreter does not look there now, as for root with another user's HOME
		}
	}
	if found == "" || namesAreOurs(found) {
		return nil
	}
	return fmt.Errorf("--tensorflowonspark: %s was not written by tfcluster: to have tfcluster's modules under this "+
		"name, remove or rename it and repeat the command", found)
}

// namesAreOurs reports whether the package in a folder is the one that installNames writes.
func namesAreOurs(folder string) bool {
	content, err := os.ReadFile(filepath.Join(folder, "__init__.py"))
	return err == nil && strings.Contains(string(content), namesMark)
}

// installNames writes the package tensorflowonspark and its distribution, which pip lists and removes.
func installNames(dir string) error {
	if err := writeNames(dir); err != nil {
		step := "correct this and repeat the command"
		if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
			step = "repeat the command as a user that can write this folder, or with the --python of another environment"
		}
		return fmt.Errorf("--tensorflowonspark: write the package to %s: %w; %s", dir, err, step)
	}
	fmt.Println("package "+namesPackage+":", dir)
	return nil
}

// writeNames writes the folders aside, exchanges them for those of an earlier install, and removes these.
func writeNames(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	aside, err := os.MkdirTemp(dir, ".tfcluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(aside)
	if err := os.CopyFS(aside, python.TensorFlowOnSpark()); err != nil {
		return err
	}
	distInfo := namesDistribution + "-" + version + ".dist-info"
	if err := writeDistInfo(aside, distInfo); err != nil {
		return err
	}
	old := filepath.Join(aside, "old")
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	for _, path := range namesWritten(dir) {
		if err := os.Rename(path, filepath.Join(old, filepath.Base(path))); err != nil {
			return err
		}
	}
	for _, name := range []string{namesPackage, distInfo} {
		if err := os.Rename(filepath.Join(aside, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// writeDistInfo writes the description of the package's distribution below root, as pip writes it.
func writeDistInfo(root, name string) error {
	if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
		return err
	}
	distribution := strings.ReplaceAll(namesDistribution, "_", "-")
	for file, content := range map[string]string{
		"INSTALLER": "tfcluster\n",
		"METADATA": "Metadata-Version: 2.1\nName: " + distribution + "\nVersion: " + version +
			"\nSummary: The modules of tfcluster.tfos under TensorFlowOnSpark's names\nLicense: Apache-2.0\n" +
			"Requires-Python: >=3.11\n\nWritten by `" + namesMark + "`; `tfcluster uninstall` removes it.\n",
		"WHEEL": "Wheel-Version: 1.0\nGenerator: tfcluster " + version + "\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name, file), []byte(content), 0o644); err != nil {
			return err
		}
	}
	var record strings.Builder
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(root, path))
		sum := sha256.Sum256(content)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", path, base64.RawURLEncoding.EncodeToString(sum[:]), len(content))
		return err
	})
	if err != nil {
		return err
	}
	record.WriteString(name + "/RECORD,,\n")
	return os.WriteFile(filepath.Join(root, name, "RECORD"), []byte(record.String()), 0o644)
}

// namesWritten returns the files of installNames in a folder for packages, those of other versions too.
func namesWritten(dir string) []string {
	if dir == "" {
		return nil
	}
	found, err := filepath.Glob(filepath.Join(globQuoted(dir), namesDistribution+"-*.dist-info"))
	if err != nil {
		found = nil
	}
	if at := filepath.Join(dir, namesPackage); namesAreOurs(at) {
		found = append(found, at)
	}
	return found
}

// removeNames removes what installNames wrote; it does not remove another package with that name.
func removeNames(dir string) error {
	for _, path := range namesWritten(dir) {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove the Python package %s: %w; allow that or remove the folder by hand", namesPackage, err)
		}
	}
	return nil
}
