package fabric

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestParse: the texts of sysfs.
func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"4: ACTIVE": "ACTIVE", "1: DOWN": "DOWN", "ACTIVE": "", "": ""} {
		if got := parseState(text); got != want {
			t.Errorf("state of %q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]float64{
		"100 Gb/sec (4X EDR)": 100, "2.5 Gb/sec (1X SDR)": 2.5, "800 Gb/sec (4X XDR)": 800, "": 0, "x Gb/sec": 0,
		"-1 Gb/sec": 0, "NaN Gb/sec": 0, "Inf Gb/sec": 0, "100": 0, "100 Mb/sec": 0,
	} {
		if got := parseRate(text); got != want {
			t.Errorf("rate of %q: %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"0000:0000:0000:0000:0000:ffff:0a00:000b": "10.0.0.11",
		"fe80:0000:0000:0000:0202:c9ff:fe00:0001": "fe80::202:c9ff:fe00:1", "0000:0000:0000:0000:0000:0000:0000:0000": "",
		"": "", "fe80": "", "fe80::1%eth0": "",
	} {
		got, ok := parseGID(text)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("GID %q: %v %v, want %q", text, got, ok, want)
		}
	}
	for text, want := range map[string][]string{
		"../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_0": {
			"pci0000:3a", "0000:3a:00.0", "0000:3b:00.0",
		},
		"../../devices/virtual/infiniband/rxe0":                nil,
		"../../devices/pci0000:3a/infiniband/x":                nil,
		"../../devices/pci10000:00/10000:00:01.1/infiniband/x": {"pci10000:00", "10000:00:01.1"},
		"0000:3b:00.0": nil,
	} {
		if got := pciPath(text); !slices.Equal(got, want) {
			t.Errorf("PCI path of %q: %q, want %q", text, got, want)
		}
	}
	if got := gpuUUID("Model: \t H100\nGPU UUID: \t GPU-1\n"); got != "GPU-1" {
		t.Errorf("UUID %q", got)
	}
}

// TestChoosesGID: NCCL chooses the GID since 2.21.
func TestChoosesGID(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.21.5": true, "2.20.5": false, "2.9": false, "3.0.0": true, "2.27.3+cuda12.9": true, "": false, "x": false,
		"2.x": false,
	} {
		if choosesGID(version) != want {
			t.Errorf("NCCL %q: %v, want %v", version, !want, want)
		}
	}
}

// TestSelects: NCCL_IB_HCA as NCCL reads it.
func TestSelects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value, device string
		number        int
		want          bool
	}{
		{"mlx5", "mlx5_0", 1, true},
		{"mlx5_1", "mlx5_10", 1, true},
		{"=mlx5_1", "mlx5_10", 1, false},
		{"=mlx5_1,mlx5_10:2", "mlx5_10", 2, true},
		{"mlx5_0:1", "mlx5_0", 2, false},
		{"^mlx5_0", "mlx5_0", 1, false},
		{"^=mlx5_0:2", "mlx5_0", 1, true},
		{"^mlx5_0", "mlx5_1", 1, true},
		{"", "mlx5_0", 1, true},
	} {
		if got := selects(tt.value, &Port{Device: tt.device, Number: tt.number}); got != tt.want {
			t.Errorf("NCCL_IB_HCA=%s and %s:%d: %v", tt.value, tt.device, tt.number, got)
		}
	}
}

// TestMayLock: CAP_IPC_LOCK counts in the first user namespace only.
func TestMayLock(t *testing.T) {
	t.Parallel()
	first, inner := "         0          0 4294967295\n", "         0     100000      65536\n"
	for _, tt := range []struct {
		status, mapping string
		want            bool
	}{
		{"Name:\tx\nCapEff:\t000001ffffffffff\n", first, true},
		{"CapEff:\t000001ffffffffff\n", inner, false},
		{"CapEff:\t0000000000004000\n", first, true},
		{"CapEff:\t00000000a80425fb\n", first, false}, // a container's default
		{"CapEff:\tx\n", first, false},
		{"", "", false},
	} {
		if got := mayLock([]byte(tt.status), []byte(tt.mapping)); got != tt.want {
			t.Errorf("%q, %q: %v", tt.status, tt.mapping, got)
		}
	}
}

// TestThisHost: the real files of this machine are read, and its loopback interface is found.
func TestThisHost(t *testing.T) {
	t.Parallel()
	x := Detect(ThisHost("/", "127.0.0.1", nil))
	if x.Interface.Name != "lo" {
		t.Errorf("the interface of 127.0.0.1 is %q", x.Interface.Name)
	}
	d, err := Decide([]Rank{{Task: "worker:0", Host: "a", Compared: true, Executor: x}}, Auto)
	if err != nil || len(x.Ports) == 0 && d.Link != Ethernet {
		t.Errorf("ports %v: %+v, %v", x.Ports, d, err)
	}
	if x := Detect(ThisHost(t.TempDir(), "192.0.2.1", nil)); x.Interface.Name != "" || len(x.Ports) > 0 {
		t.Errorf("an empty machine has %+v", x)
	}
}

// FuzzDetect: no content of sysfs panics, and every address that is chosen is one that was read.
func FuzzDetect(f *testing.F) {
	f.Add("../../devices/pci0000:3a/0000:3b:00.0/infiniband/m", "1: CA", "4: ACTIVE", "100 Gb/sec (4X EDR)", "Ethernet",
		"0000:0000:0000:0000:0000:ffff:0a00:000b", "RoCE v2", "NCCL_IB_TC=1\nA", "2.20")
	f.Add("pci:/0:0:0", "4:", "x", "1e999 Gb/sec", "InfiniBand", "fe80::1", "", "=\n#", "2.21")
	f.Fuzz(func(t *testing.T, link, node, state, rate, layer, gid, kind, conf, version string) {
		dir := "sys/class/infiniband/m/"
		files := fstest.MapFS{
			dir + "node_type": file0(node), dir + "device/vendor": file0(vendorAmazon), dir + "ports/1/state": file0(state),
			dir + "ports/1/rate": file0(rate), dir + "ports/1/link_layer": file0(layer), dir + "ports/1/gids/0": file0(gid),
			dir + "ports/1/gid_attrs/types/0": file0(kind), dir + "ports/1/gid_attrs/ndevs/0": file0("eth0"),
			"sys/class/infiniband_verbs/uverbs0/ibdev": file0("m"), "etc/nccl.conf": file0(conf),
			"sys/class/net/eth0/speed": file0(rate), "proc/driver/nvidia/gpus/" + "0000:3b:00.0" + "/information": file0(conf),
		}
		placed := pciPath(link)
		if len(placed) == 1 {
			t.Errorf("%q: a host bridge alone", link)
		}
		x := Detect(Host{
			Root: files, Open: func(string) error { return nil }, Memlock: Unlimited, Address: "10.0.0.11",
			GPUs:       []string{"GPU-1"},
			Interfaces: []Interface{{Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.11/24")}}},
		})
		for _, p := range x.Ports {
			if p.Rate < 0 || p.Rate > 1e6 || p.Rate != p.Rate {
				t.Errorf("rate %v", p.Rate)
			}
		}
		for _, mode := range []Mode{Auto, TCP, RDMA} {
			d, err := Decide([]Rank{
				{Task: "worker:0", Host: "a", Compared: true, NCCL: version, Executor: x},
				{Task: "worker:1", Host: "b", Compared: true, Executor: x},
			}, mode)
			if err != nil &&
				(mode != RDMA || strings.Contains(err.Error(), "\n") && !strings.Contains(node+layer+state+conf, "\n")) {
				t.Errorf("%s: %v", mode, err)
			}
			if (d.Link == Ethernet) != (len(d.Ranks[0].Ports) == 0) {
				t.Errorf("%s uses the ports %v", d.Link, d.Ranks[0].Ports)
			}
		}
	})
}

func file0(content string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(content)} }

// FuzzSelects: no value of NCCL_IB_HCA panics, and a ^ before it selects the others.
func FuzzSelects(f *testing.F) {
	f.Add("=mlx5_0:1,mlx5_1")
	f.Fuzz(func(t *testing.T, value string) {
		p := &Port{Device: "mlx5_0", Number: 1}
		rest := strings.TrimLeft(value, "^=")
		if rest != "" && selects(rest, p) == selects("^"+rest, p) {
			t.Errorf("%q and its opposite select the same", rest)
		}
		selects(value, p)
	})
}
