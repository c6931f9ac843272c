package protocol

import (
	"fmt"
	"net"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

// service is a service of the ResourceManager: its address property, default port and protocol.
type service struct {
	property, port, protocol string
}

var (
	clientService = service{
		"yarn.resourcemanager.address", "8032", "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB",
	}
	schedulerService = service{
		"yarn.resourcemanager.scheduler.address", "8030", "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB",
	}
)

// nodeProtocol is the protocol between ApplicationMasters and NodeManagers.
const nodeProtocol = "org.apache.hadoop.yarn.api.ContainerManagementProtocolPB"

// ResourceManagers returns the host:port of the configuration's ResourceManager, or of several of which one
// is active.
func ResourceManagers(conf *hadoopconf.Conf) ([]string, error) { return addresses(conf, clientService) }

// addresses returns the address of a service, or one per ResourceManager if several are configured.
func addresses(conf *hadoopconf.Conf, s service) ([]string, error) {
	suffixes := []string{""}
	if conf.Get("yarn.resourcemanager.ha.enabled") == "true" {
		suffixes = nil
		for id := range strings.SplitSeq(conf.Get("yarn.resourcemanager.ha.rm-ids"), ",") {
			if id = strings.TrimSpace(id); id != "" {
				suffixes = append(suffixes, "."+id)
			}
		}
	}
	var found []string
	for _, suffix := range suffixes {
		address := conf.Get(s.property + suffix)
		if host := conf.Get("yarn.resourcemanager.hostname" + suffix); address == "" && host != "" {
			address = net.JoinHostPort(host, s.port)
		}
		if address == "" || strings.HasPrefix(address, "${") {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(address, s.port)
		}
		found = append(found, address)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the Hadoop configuration %s names no ResourceManager: "+
			"it needs %s or yarn.resourcemanager.hostname", conf.Dir(), s.property)
	}
	return found, nil
}

// protections returns the configured protections in order of preference.
func protections(conf *hadoopconf.Conf) []string {
	var found []string
	for p := range strings.SplitSeq(conf.Get("hadoop.rpc.protection"), ",") {
		if p = strings.ToLower(strings.TrimSpace(p)); p != "" {
			found = append(found, p)
		}
	}
	return found
}
