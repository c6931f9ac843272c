package fabric

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/rdma/fabric"
)

func example() fabric.Executor {
	prefix := netip.MustParsePrefix("10.0.0.11/24")
	return fabric.Executor{
		Interface: fabric.Interface{Name: "eth0", Prefixes: []netip.Prefix{prefix}, Rate: 100}, Address: "10.0.0.11", GPUs: 1,
		PeerMemory: true,
		Ports: []fabric.Port{{
			Device: "mlx5_0", Number: 1, Link: fabric.RoCE2, State: "ACTIVE", Rate: 100, Netdev: "eth0",
			GIDs: []fabric.GID{{Index: 3, Version: 2, Prefix: prefix}}, Near: "near", Software: true, Layer: "Ethernet",
			Problem: "x", Remedy: "y",
		}},
		Own: []fabric.Variable{{Name: "NCCL_IB_TC", Value: "106", Source: "its environment"}},
	}
}

// TestReport: the driver has every field that an agent has found.
func TestReport(t *testing.T) {
	t.Parallel()
	want := example()
	for _, v := range []reflect.Value{
		reflect.ValueOf(want), reflect.ValueOf(want.Interface), reflect.ValueOf(want.Ports[0]),
		reflect.ValueOf(want.Ports[0].GIDs[0]), reflect.ValueOf(want.Own[0]),
	} {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s is not tried", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
	if got := executor(Report(&want)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := executor(nil); !reflect.DeepEqual(got, fabric.Executor{}) {
		t.Errorf("an agent that reports nothing: %+v", got)
	}
	bad := executor(&clusterpb.Fabric{
		Interface: &clusterpb.NetworkInterface{Prefixes: []string{"x"}},
		Ports:     []*clusterpb.FabricPort{{Gids: []*clusterpb.FabricGID{{Prefix: "y"}}}},
	})
	if len(bad.Interface.Prefixes) > 0 || len(bad.Ports[0].GIDs) > 0 {
		t.Errorf("addresses %+v", bad)
	}
	c := fabric.Choice{Version: "2.21.5", Network: "IB", Devices: []string{"mlx5_0:1/IB"}, Paths: []string{"NET/IB"}}
	if m := Choice(&c); m.GetVersion() != c.Version || m.GetNetwork() != c.Network ||
		!reflect.DeepEqual(m.GetDevices(), c.Devices) || !reflect.DeepEqual(m.GetPaths(), c.Paths) {
		t.Errorf("choice %v", m)
	}
}

// TestDecide: start --env wins over reserve --env, and both over what the driver would set.
func TestDecide(t *testing.T) {
	t.Parallel()
	x := example()
	x.Ports[0].Problem, x.Ports[0].Remedy, x.Ports[0].Software = "", "", false
	members := []Member{
		{Task: "worker:0", Host: "a", Compared: true, Python: &clusterpb.Python{Nccl: "2.18.1"}, Fabric: Report(&x)},
		{Task: "worker:1", Host: "b", Compared: true, Fabric: Report(&x)},
	}
	given := Given{Reserve: map[string]string{"NCCL_SOCKET_IFNAME": "y", "NCCL_IB_TC": "1"}, Start: map[string]string{
		"NCCL_SOCKET_IFNAME": "x",
	}}
	reply, err := Decide(members, "", given)
	if err != nil || reply.GetMode() != "auto" || reply.GetLink() != "RoCE v2" {
		t.Fatalf("%v, %v", reply, err)
	}
	got := map[string]string{}
	for _, s := range reply.GetExecutors()[0].GetSettings() {
		got[s.GetName()] = s.GetValue() + " " + s.GetSource()
	}
	want := map[string]string{
		"NCCL_SOCKET_IFNAME": "x start --env", "GLOO_SOCKET_IFNAME": "eth0 ", "NCCL_IB_GID_INDEX": "3 ",
		"NCCL_IB_TC": "1 reserve --env",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("settings %v, want %v", got, want)
	}
	if _, err := Decide(members, "wifi", Given{}); err == nil || !strings.Contains(err.Error(), "want auto, tcp or rdma") {
		t.Errorf("an unknown mode: %v", err)
	}
	members[1].Fabric = nil
	reply, err = Decide(members, "rdma", Given{})
	if err == nil || err.Error() != "--fabric rdma: worker:1 on b: it has no RDMA device; --fabric auto uses TCP then" ||
		reply.GetLink() != "Ethernet" {
		t.Errorf("%v, %v", reply, err)
	}
}
