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

// LogPage returns the URL of the NodeManager's log page of an executor's container, or "". The NodeManager
// decides who may see it.
func (a *Attempt) LogPage(id cluster.ExecutorID) string {
	a.mu.Lock()
	all := a.allocation
	a.mu.Unlock()
	if all == nil {
		return ""
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	x := all.executors[id]
	if x == nil || x.lastContainer == nil || x.web == "" {
		return ""
	}
	return fmt.Sprintf("http://%s/node/containerlogs/%s/%s", x.web, protocol.ContainerName(x.lastContainer), a.site.User)
}

// Authorize admits only requests of YARN's web proxy, which runs within the ResourceManager or standalone.
// The proxy has authenticated the user, if YARN is configured so, and checked the application's view ACL.
func (a *Attempt) Authorize(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), lookupLimit)
		defer cancel()
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil &&
			slices.Contains(proxyAddresses(ctx, a.site.Conf), host) {
			page.ServeHTTP(w, r)
			return
		}
		http.Error(w, "this page is served only through YARN's web proxy, not directly to "+
			r.RemoteAddr, http.StatusForbidden)
	})
}

// lookupLimit bounds the DNS lookups for one request.
const lookupLimit = 5 * time.Second

// proxyAddresses returns the addresses from which YARN's web proxy calls. It binds to the address of its
// host's name; if that is a loopback address, it calls from this machine's.
func proxyAddresses(ctx context.Context, conf *hadoopconf.Conf) []string {
	var all []string
	for _, proxy := range proxies(conf) {
		found, _ := net.DefaultResolver.LookupHost(ctx, proxy) // a host without an address cannot call
		all = append(all, found...)
		if here, err := os.Hostname(); err == nil && slices.ContainsFunc(found, isLoopback) {
			found, _ = net.DefaultResolver.LookupHost(ctx, here)
			all = append(all, found...)
		}
	}
	return all
}

func isLoopback(address string) bool { return net.ParseIP(address).IsLoopback() }

// proxies returns the hosts of YARN's web proxy.
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
