package agent

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// Interval and sizes of the transfer of event files.
const (
	syncInterval = time.Second
	syncChunk    = 256 << 10
	syncRound    = 8 << 20          // bytes per round; its offsets count once it has succeeded
	syncTimeout  = 30 * time.Second // of one round
)

// fileSync sends the event files of a run to a driver that does not share this disk. They are
// append-only, so it keeps an offset per file; a file that has shrunk is sent again.
type fileSync struct {
	client   clusterpb.CoordinatorClient
	executor string
	dir      string // of the run
	base     string // the parent of dir, to which the paths sent are relative
	sent     map[string]int64
}

func newFileSync(client clusterpb.CoordinatorClient, executor, runDir string) *fileSync {
	return &fileSync{
		client: client, executor: executor, dir: runDir, base: filepath.Dir(filepath.Clean(runDir)), sent: map[string]int64{},
	}
}

// run sends every second until ended is closed. The caller then calls rounds.
func (s *fileSync) run(ctx context.Context, ended <-chan struct{}) {
	ticker := time.NewTicker(syncInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			return
		case <-ticker.C:
			_ = s.rounds(ctx) // the next round sends it
		}
	}
}

// rounds sends until nothing is left or an error occurs.
func (s *fileSync) rounds(ctx context.Context) error {
	for {
		if more, err := s.round(ctx); err != nil || !more {
			return err
		}
	}
}

// round sends data appended since the last successful round, at most syncRound bytes. more says
// that some is left.
func (s *fileSync) round(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	var stream grpc.ClientStreamingClient[clusterpb.FileChunk, clusterpb.SyncReply]
	reached := map[string]int64{}
	left := int64(syncRound)
	send := func(chunk *clusterpb.FileChunk) (err error) {
		if stream == nil {
			if stream, err = s.client.Sync(ctx); err != nil {
				return err
			}
		}
		return stream.Send(chunk)
	}
	err = filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !s.isSent(path) {
			return nil // an unreadable or removed file does not hold up the others
		}
		end, err := s.file(path, &left, send)
		if end > 0 {
			reached[path] = end
		}
		if left <= 0 && err == nil {
			return filepath.SkipAll
		}
		return err
	})
	if stream == nil {
		return false, err
	}
	if _, closeErr := stream.CloseAndRecv(); closeErr != nil {
		return false, fmt.Errorf("send the event files: %w", closeErr)
	}
	maps.Copy(s.sent, reached)
	return left <= 0, err
}

// file sends a file's new bytes, up to *left, and returns the offset it has reached; 0 for
// nothing.
func (s *fileSync) file(path string, left *int64, send func(*clusterpb.FileChunk) error) (end int64, err error) {
	relative, err := filepath.Rel(s.base, path)
	if err != nil || !filepath.IsLocal(relative) || !utf8.ValidString(relative) {
		return 0, nil // such a name cannot be sent
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, nil
	}
	defer f.Close()
	offset := s.sent[path]
	if info, err := f.Stat(); err != nil || info.Size() == offset {
		return 0, nil
	} else if info.Size() < offset {
		offset = 0
	}
	buffer := make([]byte, syncChunk)
	for *left > 0 {
		n, err := f.ReadAt(buffer, offset)
		if n > 0 {
			chunk := &clusterpb.FileChunk{Path: relative, Offset: offset, Data: buffer[:n:n], ExecutorId: s.executor}
			if err := send(chunk); err != nil {
				return 0, err
			}
			offset += int64(n)
			*left -= int64(n)
		}
		if err != nil { // EOF or a read error: the next round continues here
			break
		}
	}
	return offset, nil
}

// isSent reports whether a file is one that is sent while it grows.
func (s *fileSync) isSent(path string) bool {
	relative, err := filepath.Rel(s.base, path)
	return err == nil && runfiles.IsAppendOnly(path) && runfiles.Refusal(filepath.ToSlash(relative)) == ""
}

// left returns the files that were not sent completely. It must not be called during a round.
func (s *fileSync) left() []string {
	var left []string
	_ = filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !s.isSent(path) {
			return nil
		}
		relative, err := filepath.Rel(s.base, path)
		if info, statErr := entry.Info(); err == nil && statErr == nil && info.Size() != s.sent[path] {
			left = append(left, relative)
		}
		return nil
	})
	return left
}
