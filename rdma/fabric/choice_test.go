package fabric

import (
	"reflect"
	"strings"
	"testing"
)

// TestChoice: the lines of NCCL 2.10 to 2.30. They are written after the formats in NCCL's source, at its tags.
func TestChoice(t *testing.T) {
	t.Parallel()
	const at = "node1:4711:4802 [0] NCCL INFO "
	for _, tt := range []struct {
		name  string
		lines []string
		want  Choice
	}{
		{
			"RoCE",
			[]string{
				"NCCL version 2.21.5+cuda12.4",
				at + "Bootstrap : Using eth0:10.0.0.11<0>",
				at + "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.11<0>",
				at + "Using non-device net plugin version 0",
				at + "Using network IB",
				at + "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
				at + "Channel 01/0 : 1[0] -> 0[0] [receive] via NET/IB/1/GDRDMA",
				at + "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(4)/GDRDMA",
			},
			Choice{
				Version: "2.21.5+cuda12.4", Network: "IB", Devices: []string{"mlx5_0:1/RoCE", "mlx5_1:1/RoCE"},
				Paths: []string{"NET/IB/GDRDMA"},
			},
		},
		{
			"sockets",
			[]string{
				at + "NCCL version 2.10.3+cuda11.4",
				at + "NET/IB : No device found.",
				at + "NET/Socket : Using [0]eth0:10.0.0.11<0> [1]eth1:10.0.1.11<0>",
				at + "NET/Socket: Using 2 threads and 1 sockets per thread",
				at + "Using network Socket",
				at + "Channel 00 : 0[0] -> 1[0] via SHM/direct/direct",
			},
			Choice{
				Version: "2.10.3+cuda11.4", Network: "Socket", Devices: []string{"eth0:10.0.0.11", "eth1:10.0.1.11"},
				Paths: []string{"SHM/direct/direct"},
			},
		},
		{
			"a plugin",
			[]string{
				at + "NET/OFI Selected Provider is efa (found 1 nics)", at + "Initialized NET plugin AWS Libfabric", at +
					"Using network AWS Libfabric",
			},
			Choice{Network: "AWS Libfabric"},
		},
		{
			"IB is given up for sockets",
			[]string{
				at + "NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.11<0>", at + "NET/Socket : Using [0]eth0:10.0.0.11<0>",
			},
			Choice{Network: "Socket", Devices: []string{"eth0:10.0.0.11"}},
		},
		{
			"other lines", []string{"epoch 1", "NET/IB : Using [0]x", "I use NCCL INFO for data", at + "Channel 00", at +
				"Using network ", "NCCL WARN via x"}, Choice{},
		},
	} {
		var c Choice
		for _, line := range tt.lines {
			c.Read(line)
		}
		if !reflect.DeepEqual(c, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, c, tt.want)
		}
		for _, line := range tt.lines[len(tt.lines)-1:] {
			if c.Read(line) {
				t.Errorf("%s: %q says something new twice", tt.name, line)
			}
		}
	}
}

// FuzzChoice: no line panics, and what is kept is bounded and without control characters.
func FuzzChoice(f *testing.F) {
	for _, line := range []string{
		"NCCL version 2.21.5+cuda12.4", "x NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.11<0>",
		"NCCL INFO Using network IB", "NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
		"NCCL INFO NET/Socket : Using [0]\x1b[31m<0>",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var c Choice
		for i := range 100 {
			c.Read(line + strings.Repeat("x", i))
		}
		if len(c.Devices) > maxNames || len(c.Paths) > maxNames {
			t.Errorf("%d devices, %d paths", len(c.Devices), len(c.Paths))
		}
		for _, name := range append(append([]string{c.Version, c.Network}, c.Devices...), c.Paths...) {
			if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
				t.Errorf("kept %q", name)
			}
		}
	})
}

// BenchmarkChoice is the cost of a line that is not NCCL's.
func BenchmarkChoice(b *testing.B) {
	var c Choice
	line := strings.Repeat("Epoch 1/3 1875/1875 loss: 0.2 ", 4)
	for b.Loop() {
		c.Read(line)
	}
}
