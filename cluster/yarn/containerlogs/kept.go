package containerlogs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/yarn/aggregated"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
)

// nodeFile is how a node's file is called: host_port, with when it was written where a
// node writes several.
var nodeFile = regexp.MustCompile(`^(.+?)_(\d+)(_\d{10,})?$`)

// root is below which nodes put logs: for each user a folder.
func (r *logReader) root() string {
	return cmp.Or(r.site.Conf.Get("yarn.log-aggregation.TFile.remote-app-log-dir"), r.site.Conf.Get("yarn.nodemanager.remote-app-log-dir"), "/tmp/logs")
}

// folders are where an application's logs may be: as Hadoop 3.3 lays them out, in buckets
// of applications, and as earlier ones did.
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

// userDir holds what the nodes put on HDFS of a user's containers.
func (r *logReader) userDir() string { return strings.TrimRight(r.root(), "/") + "/" + r.user() }

// bucket is an application's folder with the one that it shares with few others.
func (r *logReader) bucket() string {
	return fmt.Sprintf("%04d/%s", r.id.GetId()%10_000, protocol.ApplicationName(r.id))
}

// fromHDFS reads what the nodes have put on HDFS. It fails with fs.ErrNotExist where they
// have put nothing there.
func (r *logReader) fromHDFS(ctx context.Context) error {
	store, err := site.NewHDFS(r.site)
	if err != nil {
		return err
	}
	defer store.Close()
	var missing error
	for _, dir := range append(r.folders(), r.others(ctx, store)...) {
		infos, err := store.List(ctx, dir)
		if errors.Is(err, fs.ErrNotExist) {
			missing = cmp.Or(missing, err)
			continue
		}
		if err != nil {
			return err
		}
		return r.fromFolder(ctx, store, dir, infos)
	}
	return missing
}

// others are where an application's logs may be besides: where nodes write another format,
// or below another name than this host's configuration has.
func (r *logReader) others(ctx context.Context, store *hdfs.FS) []string {
	known := r.folders()
	var found []string
	infos, err := store.List(ctx, r.userDir())
	if err != nil {
		return nil // the known ones say why
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

// fromFolder reads the nodes' files, and says of those that are not whole yet. It fails
// with fs.ErrNotExist where none is.
func (r *logReader) fromFolder(ctx context.Context, store *hdfs.FS, dir string, infos []fs.FileInfo) error {
	read, coming := 0, 0
	for _, i := range infos {
		parts := nodeFile.FindStringSubmatch(i.Name())
		if strings.HasSuffix(i.Name(), ".tmp") {
			coming++
		}
		if parts == nil || i.IsDir() {
			continue
		}
		err := r.fromFile(ctx, store, dir+"/"+i.Name(), parts[1]+":"+parts[2])
		if unfinished := errors.Is(err, aggregated.ErrFormat) || errors.Is(err, aggregated.ErrCorrupt); unfinished && r.collecting() {
			coming++ // an IFile has its last name from the first
			continue
		}
		if err != nil {
			return err
		}
		read++
	}
	if coming > 0 && read > 0 {
		if err := r.emit(fmt.Sprintf("%d of the nodes are still putting theirs on HDFS: the same again in a moment shows them", coming), nil); err != nil {
			return emitError{err}
		}
	}
	if read == 0 {
		return fmt.Errorf("%s has no file of a node: %w", dir, fs.ErrNotExist)
	}
	return nil
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
	before := map[string]bool{} // what the node itself gave
	for c := range r.seen {
		before[c] = true
	}
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
		if err := r.kept(in, e, &o, node); err != nil {
			if _, ours := errors.AsType[emitError](err); ours {
				return err
			}
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// nodesOwn are a NodeManager's own notes on a container that failed: how it was started.
var nodesOwn = []string{"directory.info", "launch_container.sh"}

// kept reads one log of a container. Whose it is is said in the first of its logs.
func (r *logReader) kept(in *aggregated.Reader, e aggregated.Entry, o *owner, node string) error {
	if e.Name == markFile {
		b, err := io.ReadAll(io.LimitReader(in, markBytes))
		*o = readMark(string(b))
		return err
	}
	if !o.wanted(r.query.Task, e.Container) || slices.Contains(nodesOwn, e.Name) {
		return nil
	}
	r.seen[e.Container] = true
	cut := false
	if keep := r.keep(); keep > 0 {
		var err error
		if cut, err = in.SkipTo(keep); err != nil {
			return err
		}
	}
	return r.log(*o, e.Container, node, e.Name, in, cut)
}

// isContainer tells a container's name from a task's.
func isContainer(name string) bool { return strings.HasPrefix(name, "container_") }

// placesOf are the containers of an application among what Places gave.
func placesOf(raw []byte, application string) []Location {
	var all []Location
	if len(raw) == 0 || json.Unmarshal(raw, &all) != nil {
		return nil // they are found on HDFS without
	}
	return slices.DeleteFunc(all, func(p Location) bool {
		id, _, err := protocol.ParseContainer(p.Container)
		return err != nil || protocol.ApplicationName(id) != application
	})
}
