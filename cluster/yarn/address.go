package yarn

import (
	"context"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
)

// applicationFolder returns an application's folder on HDFS.
func applicationFolder(application string) string { return applicationsDir + "/" + application }

// addressURI returns the file on HDFS from which an agent reads the driver's new address when it cannot dial
// the driver. For an unmanaged application it exists only after the driver has moved.
func (a *allocation) addressURI(app application) (string, error) {
	store, err := site.NewHDFS(a.site)
	if err != nil {
		return "", err
	}
	defer store.Close()
	return store.URI(applicationFolder(protocol.ApplicationName(app.id)) + "/" + addressFile)
}

// PublishAddress writes the driver's new address to HDFS.
func (a *allocation) PublishAddress(ctx context.Context, address string) error {
	a.publishing.Lock() // nothing may be written after removeAddress
	defer a.publishing.Unlock()
	a.mu.Lock()
	id := a.app.id
	if a.released || id == nil {
		a.mu.Unlock()
		return nil // agents of the next application get the address with their configuration
	}
	a.folder = true // set before the write, so that a partial write is removed too
	a.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)() // Release waits for this call, so it must end then
	store, err := site.NewHDFS(a.site)
	if err != nil {
		return err
	}
	defer store.Close()
	folder := applicationFolder(protocol.ApplicationName(id))
	if err := store.MakePrivate(ctx, folder); err != nil {
		return err
	}
	return store.Write(ctx, folder+"/"+addressFile, strings.NewReader(address))
}

// removeAddress removes the address that PublishAddress wrote for an application that has ended.
func (a *allocation) removeAddress(ctx context.Context, app application) error {
	a.publishing.Lock()
	defer a.publishing.Unlock()
	a.mu.Lock()
	written := a.folder && a.attempt == nil && app.id != nil
	a.mu.Unlock()
	if !written {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, removeLimit)
	defer cancel()
	store, err := site.NewHDFS(a.site)
	if err != nil {
		return err
	}
	defer store.Close()
	return removeFolder(ctx, store, protocol.ApplicationName(app.id))
}
