package coordinator

import (
	"fmt"
	"slices"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// noteSharedHost says once when every executor is on one host although others have room. It asks the engine. Loop only.
func (c *Coordinator) noteSharedHost() {
	all := c.lc.Executors()
	lister, ok := c.reserved.alloc.(cluster.HostLister)
	if !ok || len(all) < 2 || c.cfg.Request.GetPack() {
		return
	}
	host := all[0].Host
	if slices.ContainsFunc(all, func(x *lifecycle.Executor) bool { return x.Host != host }) {
		return
	}
	c.work.Go(func() {
		others, err := lister.OtherHosts(c.working, host)
		if err != nil || len(others) == 0 {
			return // it is only advice
		}
		c.post(func() {
			c.note(fmt.Sprintf("all %d tasks are on %s, although the engine has room on %s: %%tfcluster reset --hard spreads "+
				"them; reserve --pack keeps them together, where tfcluster.collective goes through shared memory",
				len(all), host, someOf(others)), false)
			c.subs.wake()
		})
	})
}
