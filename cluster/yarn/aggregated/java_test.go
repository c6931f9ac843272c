package aggregated

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
)

// goldenIndex is the index of a NodeManager's IFile.
func goldenIndex(t testing.TB) []byte {
	t.Helper()
	file, err := os.ReadFile("testdata/node.ifile")
	if err != nil {
		t.Fatal(err)
	}
	end := len(file) - 36
	return file[end-int(binary.BigEndian.Uint32(file[end:])) : end]
}

func TestJava(t *testing.T) {
	t.Parallel()
	root, err := readJava(goldenIndex(t))
	if err != nil || root.text("user") != "root" || root.text("compressName") != "none" || root.number("version") != 1 || len((&walk{left: maxSteps}).list(root.fields["logMetas"])) != 1 {
		t.Errorf("the index is %v: %v", root, err)
	}
	const begins = "\xac\xed\x00\x05"
	class := "\x72\x00\x01C" + strings.Repeat("\x00", 8)
	for name, stream := range map[string]string{
		"empty": "", "of nothing": begins, "null": begins + "\x70", "a word": begins + "\x74\x00\x01x", "unknown": begins + "\x7b",
		"refers to nothing": begins + "\x71\x00\x7e\x00\x09", "refers below": begins + "\x71\x00\x00\x00\x00",
		"deep": begins + strings.Repeat("\x73", 100), "a class of another thing": begins + "\x73\x74\x00\x01x",
		"writes itself": begins + "\x73" + class + "\x04\x00\x00\x78\x70", "of no kind": begins + "\x73" + class + "\x02\x00\x01Q\x00\x01f\x78\x70",
		"its own parent": begins + "\x73" + class + "\x02\x00\x00\x78\x71\x00\x7e\x00\x00", "a long array": begins + "\x75" + class + "\x02\x00\x00\x78\x70\xff\xff\xff\xff",
		"a long block": begins + "\x7a\xff\xff\xff\xff",
	} {
		if o, err := readJava([]byte(stream)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, o, err)
		}
	}
}

// TestIndexGoesRound: lists that name one another many times end all the same.
func TestIndexGoesRound(t *testing.T) {
	t.Parallel()
	const many = 1 << 20
	metas := func(of *object, n int) *object {
		all := &object{}
		for range n {
			all.extra = append(all.extra, of)
		}
		return all
	}
	cycle := &object{fields: map[string]any{"logMetas": metas(metas(nil, 0), many)}}
	root := &object{fields: map[string]any{"logMetas": metas(cycle, many)}}
	if _, err := indexOf(nil, nil, root, 0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("it is read: %v", err)
	}
}

func FuzzJava(f *testing.F) {
	f.Add(goldenIndex(f))
	f.Fuzz(func(t *testing.T, stream []byte) {
		if _, err := readJava(stream); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}
