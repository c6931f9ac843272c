package fabric

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Choice is what NCCL says that it uses, with NCCL_DEBUG=INFO or more (NCCL's src/init.cc, transport/*.cc). Its zero
// value knows nothing yet.
type Choice struct {
	Version string   // "2.21.5+cuda12.4"
	Network string   // of the communicator: IB, Socket, or the name of a plugin
	Devices []string // of that network: "mlx5_0:1/RoCE", "eth0:10.0.0.11"
	Paths   []string // by which channels go: "NET/IB/GDRDMA", "P2P/CUMEM", "SHM/direct"
}

// Limits of a Choice.
const (
	maxNames = 32
	maxName  = 80 // bytes
)

// Read takes a line of a program, and returns whether it said something new. Most lines are of others: they cost a
// search for a short word.
func (c *Choice) Read(line string) bool {
	_, text, found := strings.Cut(line, "NCCL ")
	if !found {
		return false
	}
	text, info := strings.CutPrefix(text, "INFO ")
	if version, ok := strings.CutPrefix(text, "version "); ok {
		return set(&c.Version, firstWord(version))
	}
	if version, ok := strings.CutPrefix(text, "NCCL version "); ok && info {
		return set(&c.Version, firstWord(version))
	}
	if !info {
		return false
	}
	if name, ok := strings.CutPrefix(text, "Using network "); ok {
		return c.network(strings.TrimSpace(name))
	}
	for _, name := range []string{"IB", "Socket"} {
		if devices, ok := strings.CutPrefix(text, "NET/"+name+" : Using ["); ok {
			return c.devices(name, "["+devices)
		}
	}
	if _, path, ok := strings.Cut(text, " via "); ok &&
		(strings.HasPrefix(text, "Channel ") || strings.HasPrefix(text, "CollNet ")) {
		return add(&c.Paths, pathKind(firstWord(path)))
	}
	return false
}

// network takes the name of the network that NCCL has chosen. The devices of others are forgotten.
func (c *Choice) network(name string) bool {
	if (name == "IB" || name == "Socket") && c.Network != "" && c.Network != name {
		c.Devices = nil
	}
	return set(&c.Network, name)
}

// devices takes "[0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.11<0>" of a network.
func (c *Choice) devices(network, list string) bool {
	changed := set(&c.Network, network)
	if changed {
		c.Devices = nil
	}
	list, _, _ = strings.Cut(list, ";")
	for word := range strings.FieldsSeq(list) {
		number, name, found := strings.Cut(word, "]")
		number = strings.TrimPrefix(number, "[")
		if !found || name == "" || number == "" || strings.Trim(number, "0123456789") != "" {
			continue
		}
		name, _, _ = strings.Cut(name, "<")
		changed = add(&c.Devices, name) || changed
	}
	return changed
}

// pathKind returns a channel's path without its number of a device: NET/IB/0/GDRDMA is NET/IB/GDRDMA.
func pathKind(path string) string {
	parts := strings.Split(path, "/")
	if (parts[0] == "NET" || parts[0] == "COLLNET") && len(parts) > 2 {
		parts = slices.Delete(parts, 2, 3)
	}
	return strings.Join(parts, "/")
}

func firstWord(text string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	return word
}

// set stores a name, and returns whether it is another one.
func set(to *string, name string) bool {
	if name = bounded(name); name == "" || *to == name {
		return false
	}
	*to = name
	return true
}

// add adds a name to a list, and returns whether it is new and there was room.
func add(to *[]string, name string) bool {
	name = bounded(name)
	if name == "" || len(*to) == maxNames || slices.Contains(*to, name) {
		return false
	}
	*to = append(*to, name)
	return true
}

// bounded returns a name if it is short and has no control characters, otherwise "".
func bounded(name string) string {
	if len(name) > maxName || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return ""
	}
	return name
}
