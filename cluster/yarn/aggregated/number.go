package aggregated

import (
	"encoding/binary"
	"io"
)

// readNumber reads an integer in Hadoop's variable-length format (Utils.readVLong): a small one is a single
// byte; otherwise the first byte determines how many follow, and with up to three of them it also contains
// the highest bits.
func readNumber(r io.ByteReader) (int64, error) {
	b, err := r.ReadByte()
	if err != nil {
		return 0, err
	}
	high, follow := int64(int8(b)), 0
	switch {
	case high >= -32:
		return high, nil
	case high >= -72:
		high, follow = high+52, 1
	case high >= -104:
		high, follow = high+88, 2
	case high >= -120:
		high, follow = high+112, 3
	case high >= -125:
		high, follow = 0, int(high)+129
	default:
		return 0, corrupt("an integer begins with byte %d", b)
	}
	var bytes [8]byte
	for i := 8 - follow; i < 8; i++ {
		if bytes[i], err = r.ReadByte(); err != nil {
			return 0, truncated(err)
		}
	}
	n := int64(binary.BigEndian.Uint64(bytes[:]))
	if follow < 4 {
		return high<<(8*follow) | n, nil
	}
	free := 64 - 8*follow // the sign is in the first of the following bytes
	return n << free >> free, nil
}

// truncated converts an unexpected end of the file to ErrCorrupt. An error that wraps one is of the storage: the end of
// its connection.
func truncated(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // a wrapped one is not meant
		return corrupt("the file is truncated")
	}
	return err
}
