package verbs

import (
	"strings"
	"unsafe"
)

// The structures of infiniband/verbs.h with the layout that C gives them on amd64 and arm64. Fields that are not used
// have no name. A tag is the field's name in C: TestLayout compares the offsets with the header. Pointers are uintptr,
// because what they point to is not Go's.

// contextHead begins struct ibv_context. Functions of struct ibv_context_ops without a name are not called.
type contextHead struct {
	_           uintptr
	_           [11]uintptr
	PollCQ      uintptr `c:"ops.poll_cq"`
	Notify      uintptr `c:"ops.req_notify_cq"`
	_           [12]uintptr
	PostSend    uintptr `c:"ops.post_send"`
	PostReceive uintptr `c:"ops.post_recv"`
}

// deviceHead begins struct ibv_device.
type deviceHead struct {
	_         [2]uintptr
	_         int32
	Transport int32    `c:"transport_type"`
	Name      [64]byte `c:"name"`
	File      [64]byte `c:"dev_name"`
	_         [256]byte
	_         [256]byte
}

// portAttr begins struct ibv_port_attr, which has grown. The function ibv_query_port fills it up to the field flags.
type portAttr struct {
	State      uint32 `c:"state"`
	_          uint32
	MTU        uint32 `c:"active_mtu"`
	_          int32
	_          uint32
	MaxMessage uint32 `c:"max_msg_sz"`
	_          [2]uint32
	_          uint16
	LID        uint16 `c:"lid"`
	_          uint16
	_          [8]uint8
	LinkLayer  uint8 `c:"link_layer"`
	_          [5]uint8
}

// memoryHead begins struct ibv_mr.
type memoryHead struct {
	_         [3]uintptr
	_         uint64
	_         uint32
	LocalKey  uint32 `c:"lkey"`
	RemoteKey uint32 `c:"rkey"`
}

// channelHead begins struct ibv_comp_channel.
type channelHead struct {
	_    uintptr
	File int32 `c:"fd"`
}

// queueHead begins struct ibv_qp.
type queueHead struct {
	_      [6]uintptr
	_      uint32
	Number uint32 `c:"qp_num"`
}

// capacity is struct ibv_qp_cap.
type capacity struct {
	Sends           uint32 `c:"max_send_wr"`
	Receives        uint32 `c:"max_recv_wr"`
	SendElements    uint32 `c:"max_send_sge"`
	ReceiveElements uint32 `c:"max_recv_sge"`
	Inline          uint32 `c:"max_inline_data"`
}

// queueInit is struct ibv_qp_init_attr.
type queueInit struct {
	_         uintptr
	SendCQ    uintptr `c:"send_cq"`
	ReceiveCQ uintptr `c:"recv_cq"`
	_         uintptr
	Capacity  capacity `c:"cap"`
	Type      uint32   `c:"qp_type"`
	_         int32
	_         [4]byte
}

// address is struct ibv_ah_attr.
type address struct {
	GID          [16]byte `c:"grh.dgid"`
	_            uint32
	SourceIndex  uint8 `c:"grh.sgid_index"`
	HopLimit     uint8 `c:"grh.hop_limit"`
	TrafficClass uint8 `c:"grh.traffic_class"`
	_            uint8
	LID          uint16 `c:"dlid"`
	ServiceLevel uint8  `c:"sl"`
	_            [2]uint8
	IsGlobal     uint8 `c:"is_global"`
	Port         uint8 `c:"port_num"`
	_            uint8
}

// queueRecord is struct ibv_qp_attr.
type queueRecord struct {
	State           uint32 `c:"qp_state"`
	_               uint32
	MTU             uint32 `c:"path_mtu"`
	_               [2]uint32
	ReceiveNumber   uint32 `c:"rq_psn"`
	SendNumber      uint32 `c:"sq_psn"`
	Destination     uint32 `c:"dest_qp_num"`
	Access          uint32 `c:"qp_access_flags"`
	_               capacity
	Address         address `c:"ah_attr"`
	_               address
	_               [6]uint8
	MaxReads        uint8 `c:"max_rd_atomic"`
	MaxPeerReads    uint8 `c:"max_dest_rd_atomic"`
	NotReadyTimer   uint8 `c:"min_rnr_timer"`
	Port            uint8 `c:"port_num"`
	Timeout         uint8 `c:"timeout"`
	Retries         uint8 `c:"retry_cnt"`
	NotReadyRetries uint8 `c:"rnr_retry"`
	_               [11]uint8
}

// element is struct ibv_sge.
type element struct {
	Address uint64 `c:"addr"`
	Length  uint32 `c:"length"`
	Key     uint32 `c:"lkey"`
}

// sendRequest is struct ibv_send_wr.
type sendRequest struct {
	ID            uint64  `c:"wr_id"`
	Next          uintptr `c:"next"`
	Elements      uintptr `c:"sg_list"`
	Count         int32   `c:"num_sge"`
	Opcode        uint32  `c:"opcode"`
	Flags         uint32  `c:"send_flags"`
	Immediate     [4]byte `c:"imm_data"`
	RemoteAddress uint64  `c:"wr.rdma.remote_addr"`
	RemoteKey     uint32  `c:"wr.rdma.rkey"`
	_             [76]byte
}

// receiveRequest is struct ibv_recv_wr.
type receiveRequest struct {
	ID    uint64  `c:"wr_id"`
	Next  uintptr `c:"next"`
	_     uintptr
	Count int32 `c:"num_sge"`
	_     [4]byte
}

// workCompletion is struct ibv_wc.
type workCompletion struct {
	ID        uint64 `c:"wr_id"`
	Status    uint32 `c:"status"`
	Opcode    uint32 `c:"opcode"`
	_         uint32
	Length    uint32  `c:"byte_len"`
	Immediate [4]byte `c:"imm_data"`
	_         [20]byte
}

// at returns the C structure at an address that the library has returned, or that is in a mapped page.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// addressOf returns where memory is that Go does not move: a mapping.
func addressOf(memory []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(memory))) }

// text returns the C string in an array.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// textAt returns the C string at an address.
func textAt(address uintptr) string {
	var b []byte
	for ; address != 0 && *at[byte](address) != 0; address++ {
		b = append(b, *at[byte](address))
	}
	return string(b)
}
