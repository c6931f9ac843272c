package containerlogs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/yarn/aggregated"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
)

// nodeFile matches the name of a node's log file: host_port, with a time if a node writes several.
var nodeFile = regexp.MustCompile(`^(.+?)_(\d+)(_\d{10,})?$`)

// root returns the folder below which nodes upload logs; it has one folder for each user.
func (r *logReader) root() string {
	return cmp.Or(r.site.Conf.Get("yarn.log-aggregation.TFile.remote-app-log-dir"),
		r.site.Conf.Get("yarn.nodemanager.remote-app-log-dir"), "/tmp/logs")
}

// folders returns the folders in which an application's logs may be: the layout of Hadoop 3.3, with buckets
// of applications, and those of earlier versions.
func (r *logReader) folders() []string {
	suffix := cmp.Or(r.site.Conf.Get("yarn.nodemanager.remote-app-log-dir-suffix"), "logs")
	kind := cmp.Or(r.site.Conf.Get("yarn.log-aggregation.TFile.remote-app-log-dir-suffix"), suffix+"-tfile")
	name := protocol.ApplicationName(r.id)
	return []string{
		r.userDir() + "/bucket-" + kind + "/" + r.bucket(),
		r.userDir() + "/" + kind + "/" + name,
		r.userDir() + "/" + suffix + "/" + name,
	}
}

// userDir returns the folder of the application's user.
func (r *logReader) userDir() string { return strings.TrimRight(r.root(), "/") + "/" + r.user() }

// bucket returns an application's folder within its bucket.
func (r *logReader) bucket() string {
	return fmt.Sprintf("%04d/%s", r.id.GetId()%10_000, protocol.ApplicationName(r.id))
}

// fromHDFS reads the logs on HDFS. It returns fs.ErrNotExist if there are none.
func (r *logReader) fromHDFS(ctx context.Context) error {
	store, err := site.NewHDFS(r.site)
	if err != nil {
		return err
	}
	defer store.Close()
	var missing error
	for _, dir := range append(r.folders(), r.otherFolders(ctx, store)...) {
		infos, err := store.List(ctx, dir)
		if errors.Is(err, fs.ErrNotExist) {
			missing = cmp.Or(missing, err)
			continue
		}
		if err != nil {
			return err
		}
		return r.fromFolder(ctx, dir, infos, func(name, node string) error { return r.fromFile(ctx, store, name, node) })
	}
	return missing
}

// otherFolders returns further folders in which an application's logs may be: those of another format, or
// with another suffix than in this host's configuration.
func (r *logReader) otherFolders(ctx context.Context, store *hdfs.FS) []string {
	known := r.folders()
	var found []string
	infos, err := store.List(ctx, r.userDir())
	if err != nil {
		return nil // listing the known folders returns the error
	}
	for _, i := range infos {
		dir := r.userDir() + "/" + i.Name() + "/"
		for _, below := range []string{r.bucket(), protocol.ApplicationName(r.id)} {
			if name := dir + below; i.IsDir() && !slices.Contains(known, name) {
				found = append(found, name)
			}
		}
	}
	return found
}

// fromFolder reads the files of the nodes, and emits how many are incomplete. It returns the first error of a file,
// after it has read the others, and fs.ErrNotExist if no file is complete.
func (r *logReader) fromFolder(ctx context.Context, dir string, infos []fs.FileInfo,
	readFile func(name, node string) error,
) error {
	read, incomplete := 0, 0
	var failed error
	for _, i := range infos {
		parts := nodeFile.FindStringSubmatch(i.Name())
		if strings.HasSuffix(i.Name(), ".tmp") {
			incomplete++
		}
		if parts == nil || i.IsDir() {
			continue
		}
		err := readFile(dir+"/"+i.Name(), parts[1]+":"+parts[2])
		_, ours := errors.AsType[emitError](err)
		unfinished := errors.Is(err, aggregated.ErrFormat) || errors.Is(err, aggregated.ErrCorrupt)
		switch {
		case err == nil:
			read++
		case ours, ctx.Err() != nil:
			return err
		case unfinished && r.aggregating():
			incomplete++ // an IFile has its final name from the start
		default:
			failed = cmp.Or(failed, err)
		}
	}
	if incomplete > 0 && read > 0 {
		if err := r.emit(fmt.Sprintf("%d nodes are still uploading their logs to HDFS: try again in a moment", incomplete),
			nil); err != nil {
			return emitError{err}
		}
	}
	if read == 0 && failed == nil {
		return fmt.Errorf("%s has no log file of any node: %w", dir, fs.ErrNotExist)
	}
	return failed
}

// fromFile reads one node's file.
func (r *logReader) fromFile(ctx context.Context, store *hdfs.FS, name, node string) error {
	file, err := store.Open(ctx, name)
	if err != nil {
		return err
	}
	defer file.Close()
	in, err := aggregated.NewReader(file, file.Info().Size())
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer in.Close()
	asked := r.query.Task
	before := maps.Clone(r.seen) // read from the node already
	in.Only = func(container string) bool {
		return !before[container] && (!isContainer(asked) || container == asked)
	}
	var o owner
	container := ""
	for {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if e.Container != container {
			o, container = owner{}, e.Container
		}
		if err := r.readEntry(in, e, &o, node); err != nil {
			if _, ours := errors.AsType[emitError](err); ours {
				return err
			}
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// debugFiles are a NodeManager's own files about how a failed container was started.
var debugFiles = []string{"directory.info", "launch_container.sh"}

// readEntry emits one log of a container. The first of its logs has the mark.
func (r *logReader) readEntry(in *aggregated.Reader, e aggregated.Entry, o *owner, node string) error {
	if e.Name == markFile {
		b, err := io.ReadAll(io.LimitReader(in, markBytes))
		*o = readMark(string(b))
		return err
	}
	if !o.matches(r.query.Task, e.Container) || slices.Contains(debugFiles, e.Name) {
		return nil
	}
	r.seen[e.Container] = true
	cut := false
	if keep := r.tailBytes(); keep > 0 {
		var err error
		if cut, err = in.SkipTo(keep); err != nil {
			return err
		}
	}
	return r.emitLog(*o, e.Container, node, e.Name, in, cut)
}

// isContainer reports whether name is a container's rather than a task's.
func isContainer(name string) bool { return strings.HasPrefix(name, "container_") }

// parseLocations returns the containers of an application among those of LogLocations.
func parseLocations(raw []byte, application string) []Location {
	var all []Location
	if len(raw) == 0 || json.Unmarshal(raw, &all) != nil {
		return nil // the logs on HDFS can be read without them
	}
	return slices.DeleteFunc(all, func(p Location) bool {
		id, _, err := protocol.ParseContainer(p.Container)
		return err != nil || protocol.ApplicationName(id) != application
	})
}
