package yarn

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
)

// LogPage is the NodeManager's page of an executor's container. Who may see it is the
// NodeManager's to say.
func (a *Attempt) LogPage(id cluster.ExecutorID) string {
	a.mu.Lock()
	all := a.all
	a.mu.Unlock()
	if all == nil {
		return ""
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	x := all.executors[id]
	if x == nil || x.last == nil || x.web == "" {
		return ""
	}
	return fmt.Sprintf("http://%s/node/containerlogs/%s/%s", x.web, protocol.ContainerName(x.last), a.site.User)
}

// Authorize lets only YARN's proxy in, which runs with the ResourceManager or alone: it has
// asked who looks, where that is configured, and whether they may see this application.
func (a *Attempt) Authorize(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), lookupLimit)
		defer cancel()
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil && slices.Contains(proxyAddresses(ctx, a.site.Conf), host) {
			page.ServeHTTP(w, r)
			return
		}
		http.Error(w, "this page is shown by YARN's proxy, and not to "+r.RemoteAddr, http.StatusForbidden)
	})
}

// lookupLimit bounds the questions to the name service for one answer.
const lookupLimit = 5 * time.Second

// proxyAddresses are those from which YARN's proxy calls. It binds to the address of its
// host's name, and takes this machine's name for a loopback address.
func proxyAddresses(ctx context.Context, conf *hadoopconf.Conf) []string {
	var all []string
	for _, proxy := range proxies(conf) {
		found, _ := net.DefaultResolver.LookupHost(ctx, proxy) // who has no address does not call
		all = append(all, found...)
		if here, err := os.Hostname(); err == nil && slices.ContainsFunc(found, isLoopback) {
			found, _ = net.DefaultResolver.LookupHost(ctx, here)
			all = append(all, found...)
		}
	}
	return all
}

func isLoopback(address string) bool { return net.ParseIP(address).IsLoopback() }

// proxies are the hosts of YARN's proxy.
func proxies(conf *hadoopconf.Conf) []string {
	if host, _, err := net.SplitHostPort(conf.Get("yarn.web-proxy.address")); err == nil {
		return []string{host}
	}
	managers, err := protocol.ResourceManagers(conf)
	if err != nil {
		return nil
	}
	var hosts []string
	for _, m := range managers {
		if host, _, err := net.SplitHostPort(m); err == nil {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
