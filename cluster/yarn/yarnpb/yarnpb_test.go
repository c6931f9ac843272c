package yarnpb_test

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// described lists the classes of Hadoop's jars that contain descriptors, and the file that each describes.
var described = []struct{ jar, class, file string }{
	{"hadoop-common", "org/apache/hadoop/ipc/protobuf/RpcHeaderProtos", "RpcHeader.proto"},
	{"hadoop-common", "org/apache/hadoop/ipc/protobuf/ProtobufRpcEngine2Protos", "ProtobufRpcEngine2.proto"},
	{"hadoop-common", "org/apache/hadoop/ipc/protobuf/IpcConnectionContextProtos", "IpcConnectionContext.proto"},
	{"hadoop-common", "org/apache/hadoop/security/proto/SecurityProtos", "Security.proto"},
	{"hadoop-yarn-api", "org/apache/hadoop/yarn/proto/YarnProtos", "yarn_protos.proto"},
	{"hadoop-yarn-api", "org/apache/hadoop/yarn/proto/YarnServiceProtos", "yarn_service_protos.proto"},
	{"hadoop-yarn-common", "org/apache/hadoop/yarn/proto/YarnSecurityTokenProtos", "yarn_security_token.proto"},
}

// TestAsInJars compares the messages with the descriptors in Hadoop's own classes.
func TestAsInJars(t *testing.T) {
	t.Parallel()
	jars := hadooptest.Jars(t)
	messages, enums := map[string]*descriptorpb.DescriptorProto{}, map[string]*descriptorpb.EnumDescriptorProto{}
	for _, d := range described {
		file := descriptor(t, filepath.Join(jars, d.jar+"-"+hadooptest.Version()+".jar"), d.class+".class", d.file)
		for _, m := range file.GetMessageType() {
			messages[m.GetName()] = m
		}
		for _, e := range file.GetEnumType() {
			enums[e.GetName()] = e
		}
	}
	n := 0
	for _, f := range []protoreflect.FileDescriptor{
		yarnpb.File_cluster_yarn_yarnpb_ipc_proto, yarnpb.File_cluster_yarn_yarnpb_records_proto,
		yarnpb.File_cluster_yarn_yarnpb_services_proto,
	} {
		ours := protodesc.ToFileDescriptorProto(f)
		for _, m := range ours.GetMessageType() {
			theirs := messages[m.GetName()+"Proto"]
			if theirs == nil {
				t.Errorf("Hadoop has no %sProto", m.GetName())
				continue
			}
			compareMessage(t, m, theirs)
			n++
		}
		for _, e := range ours.GetEnumType() {
			compareEnum(t, e, enums[e.GetName()+"Proto"])
		}
	}
	if n < 60 {
		t.Errorf("only %d messages were compared", n)
	}
}

func compareMessage(t *testing.T, ours, theirs *descriptorpb.DescriptorProto) {
	fields := map[string]*descriptorpb.FieldDescriptorProto{}
	for _, f := range theirs.GetField() {
		fields[f.GetName()] = f
	}
	for _, f := range ours.GetField() {
		is := fields[f.GetName()]
		if is == nil || is.GetNumber() != f.GetNumber() || is.GetType() != f.GetType() || is.GetLabel() != f.GetLabel() ||
			kind(is) != kind(f) {
			t.Errorf("%s.%s: ours %v, Hadoop's %v", ours.GetName(), f.GetName(), f, is)
		}
	}
	nested := map[string]*descriptorpb.DescriptorProto{}
	for _, m := range theirs.GetNestedType() {
		nested[strings.TrimSuffix(m.GetName(), "Proto")] = m
	}
	for _, m := range ours.GetNestedType() {
		compareMessage(t, m, nested[m.GetName()])
	}
	inner := map[string]*descriptorpb.EnumDescriptorProto{}
	for _, e := range theirs.GetEnumType() {
		inner[strings.TrimSuffix(e.GetName(), "Proto")] = e
	}
	for _, e := range ours.GetEnumType() {
		compareEnum(t, e, inner[e.GetName()])
	}
}

// kind returns the name of a field's message or enumeration, without package and suffix.
func kind(f *descriptorpb.FieldDescriptorProto) string {
	n := f.GetTypeName()
	return strings.TrimSuffix(n[strings.LastIndexByte(n, '.')+1:], "Proto")
}

func compareEnum(t *testing.T, ours, theirs *descriptorpb.EnumDescriptorProto) {
	values := map[string]int32{}
	for _, v := range theirs.GetValue() {
		values[v.GetName()] = v.GetNumber()
	}
	for _, v := range ours.GetValue() {
		if n, ok := values[v.GetName()]; !ok || n != v.GetNumber() {
			t.Errorf("%s.%s: ours %d, Hadoop's %d (known: %t)", ours.GetName(), v.GetName(), v.GetNumber(), n, ok)
		}
	}
}

// descriptor reads the serialized descriptor in a class that protoc generated, where it is split into
// consecutive string constants.
func descriptor(t *testing.T, jar, class, file string) *descriptorpb.FileDescriptorProto {
	t.Helper()
	z, err := zip.OpenReader(jar)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	f, err := z.Open(class)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	constants, err := constantStrings(b)
	if err != nil {
		t.Fatalf("%s: %v", class, err)
	}
	begin := "\n" + string(rune(len(file))) + file
	for i, c := range constants {
		if !strings.HasPrefix(string(c), begin) {
			continue
		}
		var whole []byte
		for _, part := range constants[i:] {
			whole = append(whole, part...)
			d := &descriptorpb.FileDescriptorProto{}
			if proto.Unmarshal(whole, d) == nil && len(d.GetMessageType()) > 0 {
				return d
			}
		}
	}
	t.Fatalf("%s contains no descriptor of %s", class, file)
	return nil
}

// constantStrings returns the string constants of a class file in the order of its constant pool, with one
// byte for each character.
func constantStrings(b []byte) ([][]byte, error) {
	if len(b) < 10 || binary.BigEndian.Uint32(b) != 0xCAFEBABE {
		return nil, errors.New("not a class file")
	}
	n := int(binary.BigEndian.Uint16(b[8:]))
	b = b[10:]
	text, refs := map[int][]byte{}, []int{}
	// The size of a constant after its tag, by tag.
	sizes := map[byte]int{
		3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2,
	}
	for i := 1; i < n; i++ {
		if len(b) < 3 {
			return nil, io.ErrUnexpectedEOF
		}
		tag, size := b[0], sizes[b[0]]
		if tag == 1 {
			size = 2 + int(binary.BigEndian.Uint16(b[1:]))
		}
		if size == 0 || len(b) < 1+size {
			return nil, errors.New("a constant of an unknown kind")
		}
		switch tag {
		case 1:
			text[i] = latin1(b[3 : 1+size])
		case 5, 6:
			i++ // these occupy two entries
		case 8:
			refs = append(refs, int(binary.BigEndian.Uint16(b[1:])))
		}
		b = b[1+size:]
	}
	var found [][]byte
	for _, r := range refs {
		found = append(found, text[r])
	}
	return found, nil
}

// latin1 decodes a string in Java's encoding whose characters are all below 256: zero and the characters
// above 127 have two bytes.
func latin1(b []byte) []byte {
	var out []byte
	for i := 0; i < len(b); i++ {
		if b[i]&0xE0 == 0xC0 && i+1 < len(b) {
			out = append(out, b[i]<<6|b[i+1]&0x3F)
			i++
			continue
		}
		out = append(out, b[i])
	}
	return out
}
