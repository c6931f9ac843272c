package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// structures are the C names of the types in layout.go; of those whose Go type has only the
// beginning, isWhole is false.
var structures = []struct {
	c       string
	value   any
	isWhole bool
}{
	{"ibv_context", contextHead{}, false},
	{"ibv_device", deviceHead{}, true},
	{"ibv_port_attr", portAttr{}, false},
	{"ibv_mr", memoryHead{}, false},
	{"ibv_comp_channel", channelHead{}, false},
	{"ibv_qp", queueHead{}, false},
	{"ibv_qp_cap", capacity{}, true},
	{"ibv_qp_init_attr", queueInit{}, true},
	{"ibv_ah_attr", address{}, true},
	{"ibv_qp_attr", queueRecord{}, true},
	{"ibv_sge", element{}, true},
	{"ibv_send_wr", sendRequest{}, true},
	{"ibv_recv_wr", receiveRequest{}, true},
	{"ibv_wc", workCompletion{}, true},
}

// constants are values of the header, by their names there.
var constants = map[string]int{
	"IBV_TRANSPORT_IWARP": transportIWARP, "IBV_PORT_ACTIVE": portActive, "IBV_LINK_LAYER_ETHERNET": linkEthernet,
	"IBV_QPT_RC": queueTypeRC, "IBV_ACCESS_LOCAL_WRITE": int(LocalWrite), "IBV_ACCESS_REMOTE_WRITE": int(RemoteWrite),
	"IBV_QPS_INIT": stateInit, "IBV_QPS_RTR": stateRTR, "IBV_QPS_RTS": stateRTS, "IBV_QPS_ERR": stateError,
	"IBV_QP_STATE": maskState, "IBV_QP_ACCESS_FLAGS": maskAccess, "IBV_QP_PKEY_INDEX": maskPkeyIndex,
	"IBV_QP_PORT": maskPort, "IBV_QP_AV": maskAddress, "IBV_QP_PATH_MTU": maskMTU, "IBV_QP_TIMEOUT": maskTimeout,
	"IBV_QP_RETRY_CNT": maskRetries, "IBV_QP_RNR_RETRY": maskNotReadyRetries, "IBV_QP_RQ_PSN": maskReceive,
	"IBV_QP_MAX_QP_RD_ATOMIC": maskMaxReads, "IBV_QP_MIN_RNR_TIMER": maskNotReadyTimer, "IBV_QP_SQ_PSN": maskSend,
	"IBV_QP_MAX_DEST_RD_ATOMIC": maskMaxPeerReads, "IBV_QP_DEST_QPN": maskDestination, "IBV_WR_RDMA_WRITE": opcodeWrite,
	"IBV_WR_RDMA_WRITE_WITH_IMM": opcodeWriteImmediate, "IBV_SEND_SIGNALED": flagSignaled, "IBV_SEND_INLINE": flagInline,
	"IBV_WC_RECV": completionReceive, "IBV_WC_SUCCESS": int(Success), "IBV_WC_WR_FLUSH_ERR": int(Flushed),
	"IBV_WC_REM_ACCESS_ERR": int(RemoteAccess), "IBV_WC_RETRY_EXC_ERR": int(RetriesExceeded),
}

// TestLayout: the structures have the offsets and sizes that a C compiler gives those of the header, for each kind of
// processor for which there is a compiler.
func TestLayout(t *testing.T) {
	t.Parallel()
	var program strings.Builder
	program.WriteString("#include <stddef.h>\n#include <infiniband/verbs.h>\n")
	for _, s := range structures {
		typ := reflect.TypeOf(s.value)
		if s.isWhole {
			fmt.Fprintf(&program, "_Static_assert(sizeof(struct %s) == %d, \"size of %s\");\n", s.c, typ.Size(), s.c)
		}
		for f := range typ.Fields() {
			if c := f.Tag.Get("c"); c != "" {
				fmt.Fprintf(&program, "_Static_assert(offsetof(struct %s, %s) == %d, \"%s.%s\");\n", s.c, c, f.Offset, s.c, c)
				fmt.Fprintf(&program, "_Static_assert(sizeof(((struct %s *)0)->%s) == %d, \"size of %s.%s\");\n", s.c, c,
					f.Type.Size(), s.c, c)
			}
		}
	}
	for name, value := range constants {
		fmt.Fprintf(&program, "_Static_assert(%s == %d, \"%s\");\n", name, value, name)
	}
	source := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(source, []byte(program.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string][]string{
		"this machine": {"gcc"},
		"aarch64":      {"../../.venv-wheel/bin/python", "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compiler, err := exec.LookPath(command[0])
			if err != nil {
				t.Skipf("missing: %s", command[0])
			}
			include := header(t)
			arguments := append(command[1:], "-c", "-o", filepath.Join(t.TempDir(), "layout.o"), "-idirafter", include, source)
			cmd := exec.CommandContext(t.Context(), compiler, arguments...)
			cmd.Env = append(os.Environ(), "ZIG_GLOBAL_CACHE_DIR="+zigCache(t))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %v\n%s", command, err, out)
			}
		})
	}
}

// zigCache returns the folder that the wheel's build uses, too.
func zigCache(t *testing.T) string {
	t.Helper()
	cache, err := filepath.Abs("../../build/zig")
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

// header returns the folder with infiniband/verbs.h: the machine's, or that of make test-rdma.
func header(t *testing.T) string {
	t.Helper()
	for _, folder := range []string{"/usr/include", "../../.rdma/root/usr/include"} {
		if _, err := os.Stat(filepath.Join(folder, "infiniband", "verbs.h")); err == nil {
			return folder
		}
	}
	t.Skip("missing: infiniband/verbs.h of libibverbs-dev")
	return ""
}
