// Package fabric chooses the network of a cluster's tasks: agents report with it what rdma/fabric has found on their
// hosts, and the driver decides with it for all of them. It is pure.
package fabric

import (
	"net/netip"
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/rdma/fabric"
)

// Report returns the message of an executor's network.
func Report(x *fabric.Executor) *clusterpb.Fabric {
	f := &clusterpb.Fabric{Address: x.Address, Gpus: int32(x.GPUs), PeerMemory: x.PeerMemory}
	if x.Interface.Name != "" {
		f.Interface = &clusterpb.NetworkInterface{Name: x.Interface.Name, Rate: x.Interface.Rate}
		for _, p := range x.Interface.Prefixes {
			f.Interface.Prefixes = append(f.Interface.Prefixes, p.String())
		}
	}
	for i := range x.Ports {
		f.Ports = append(f.Ports, reportPort(&x.Ports[i]))
	}
	for _, v := range x.Own {
		f.Own = append(f.Own, &clusterpb.FabricSetting{Name: v.Name, Value: v.Value, Source: v.Source})
	}
	return f
}

func reportPort(p *fabric.Port) *clusterpb.FabricPort {
	m := &clusterpb.FabricPort{
		Device: p.Device, Number: int32(p.Number), Link: string(p.Link), State: p.State, Rate: p.Rate, Netdev: p.Netdev,
		Near: p.Near, Software: p.Software, Layer: p.Layer, Problem: p.Problem, Remedy: p.Remedy,
	}
	for _, g := range p.GIDs {
		m.Gids = append(m.Gids,
			&clusterpb.FabricGID{Index: int32(g.Index), Version: int32(g.Version), Prefix: g.Prefix.String()})
	}
	return m
}

// executor is the opposite of Report. Addresses that cannot be read are left out.
func executor(f *clusterpb.Fabric) fabric.Executor {
	x := fabric.Executor{Address: f.GetAddress(), GPUs: int(f.GetGpus()), PeerMemory: f.GetPeerMemory()}
	x.Interface = fabric.Interface{Name: f.GetInterface().GetName(), Rate: f.GetInterface().GetRate()}
	for _, text := range f.GetInterface().GetPrefixes() {
		if p, err := netip.ParsePrefix(text); err == nil {
			x.Interface.Prefixes = append(x.Interface.Prefixes, p)
		}
	}
	for _, m := range f.GetPorts() {
		p := fabric.Port{
			Device: m.GetDevice(), Number: int(m.GetNumber()), Link: fabric.Link(m.GetLink()), State: m.GetState(),
			Rate: m.GetRate(), Netdev: m.GetNetdev(), Near: m.GetNear(), Software: m.GetSoftware(), Layer: m.GetLayer(),
			Problem: m.GetProblem(), Remedy: m.GetRemedy(),
		}
		for _, g := range m.GetGids() {
			if prefix, err := netip.ParsePrefix(g.GetPrefix()); err == nil {
				p.GIDs = append(p.GIDs, fabric.GID{Index: int(g.GetIndex()), Version: int(g.GetVersion()), Prefix: prefix})
			}
		}
		x.Ports = append(x.Ports, p)
	}
	for _, v := range f.GetOwn() {
		x.Own = append(x.Own, fabric.Variable{Name: v.GetName(), Value: v.GetValue(), Source: v.GetSource()})
	}
	return x
}

// Choice returns the message of what NCCL says that it uses.
func Choice(c *fabric.Choice) *clusterpb.NCCLChoice {
	return &clusterpb.NCCLChoice{
		Version: c.Version, Network: c.Network, Devices: slices.Clone(c.Devices), Paths: slices.Clone(c.Paths),
	}
}
