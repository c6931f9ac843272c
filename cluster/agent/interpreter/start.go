package interpreter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/agent/forking"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/python"
	"github.com/tfcluster/tfcluster/internal/excerpt"
	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// bindTimeout bounds the time until a new interpreter opens its socket, which it does before
// large imports.
const bindTimeout = 60 * time.Second

// Starter finds and starts the zygotes of this user on this host.
type Starter struct {
	Dir string // for sockets, locks, logs and the package tfcluster; shared by the host's agents
}

func (s Starter) cache() string { return filepath.Join(s.Dir, "cache") }

// Extract extracts the package tfcluster for zygotes. It takes milliseconds, which executors of
// commands save.
func (s Starter) Extract() error {
	_, err := python.Extract(s.cache())
	return err
}

// connect returns a connection to the wanted zygote, and starts it if no agent has. started
// reports that.
func (s Starter) connect(ctx context.Context, want *clusterpb.WarmUp) (z *zygote, started bool, err error) {
	base := s.base(want)
	lock, err := lockfile.Open(ctx, base+".lock", lockfile.Exclusive)
	if err != nil {
		return nil, false, fmt.Errorf("lock the start of the Python that tasks are forked from (the zygote): %w", err)
	}
	defer lock.Close()
	if conn, err := DialPeer(base + ".sock"); err == nil {
		return NewZygote(conn), false, nil
	}
	os.Remove(base + ".sock") // left by a killed zygote
	z, err = s.start(ctx, want, base)
	return z, true, err
}

// base returns the path of a zygote's files without their suffix.
func (s Starter) base(want *clusterpb.WarmUp) string {
	return filepath.Join(s.Dir, "zygote-"+Key(want, s.searchPath(want)))
}

func (s Starter) start(ctx context.Context, want *clusterpb.WarmUp, base string) (*zygote, error) {
	if !want.GetPlain() {
		if err := s.Extract(); err != nil {
			return nil, err
		}
	}
	log, err := os.OpenFile(base+".log", os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of the Python that tasks are forked from (the zygote): %w", err)
	}
	defer log.Close()
	// Independent of ctx: the zygote serves this host's other agents too, and ends once no
	// agent is connected.
	cmd := Command(want, base+".sock")
	cmd.Env = zygoteEnv(os.Environ(), want.GetEnv(), s.searchPath(want))
	cmd.Dir = s.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s: %w", programOf(want), err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // reaps it; ends with the zygote or this process
	deadline := time.NewTimer(bindTimeout)
	defer deadline.Stop()
	for pause := time.Millisecond; ; pause = min(pause*5/4, 100*time.Millisecond) { // a forker needs a few milliseconds
		if conn, err := DialPeer(base + ".sock"); err == nil {
			return NewZygote(conn), nil
		}
		select {
		case err := <-ended:
			err = cmp.Or(err, errors.New("exit status 0"))
			return nil, fmt.Errorf("%s ended at its start (%w): %s", programOf(want), err,
				strings.TrimPrefix(excerpt.LastLine(base+".log"), "tfcluster "+forking.ForkerCommand+": "))
		case <-deadline.C:
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // with its guard
			return nil, fmt.Errorf("%s was not ready within %v: the host may be overloaded or its disk slow; try again",
				programOf(want), bindTimeout)
		case <-ctx.Done():
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // with its guard
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Command returns the command that starts a wanted zygote, or a forker if it is plain, under a
// guard.
func Command(want *clusterpb.WarmUp, socket string) *exec.Cmd {
	cmd := exec.Command(forking.ThisProgram, forking.GuardCommand)
	cmd.Args[0] = "tfcluster"
	if want.GetPlain() {
		cmd.Args = append(cmd.Args, forking.ThisProgram, forking.ForkerCommand, "--socket", socket, "--python",
			want.GetPython())
		return cmd
	}
	path := want.GetPython()
	if found, err := exec.LookPath(path); err == nil { // the guard's PATH may be the programs' own
		path = found
	}
	cmd.Args = append(cmd.Args, path, "-P", "-m", "tfcluster.zygote", "--socket", socket)
	if !want.GetZygote() {
		cmd.Args = append(cmd.Args, "--bare")
	}
	return cmd
}

// programOf returns the name of the started program for error messages.
func programOf(want *clusterpb.WarmUp) string {
	if want.GetPlain() {
		return "tfcluster " + forking.ForkerCommand + ", from which tasks are started,"
	}
	return want.GetPython()
}

// searchPath returns the folder in which a zygote finds the package tfcluster; "" for a forker,
// whose tasks get it in PYTHONPATH.
func (s Starter) searchPath(want *clusterpb.WarmUp) string {
	if want.GetPlain() {
		return ""
	}
	return s.packageDir()
}

// packageDir returns the folder with the package tfcluster.
func (s Starter) packageDir() string { return python.Place(s.cache()) }

// Key identifies the zygotes that can fork a task: by interpreter and everything that imports
// depend on, including some variables of this agent's environment. The other variables are set
// at the fork.
func Key(want *clusterpb.WarmUp, pythonPath string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00%t\x00%s\x00%d\x00", want.GetPython(), want.GetZygote(), pythonPath, want.GetGeneration())
	if want.GetPlain() {
		fmt.Fprint(sum, "plain\x00")
	}
	env := importEnv(want)
	for _, k := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(sum, "%s=%s\x00", k, env[k])
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// zygoteEnv returns a zygote's environment: wanted variables on top of this process's.
// TensorFlow's log level is 1 unless set. An empty searchPath leaves PYTHONPATH unchanged.
func zygoteEnv(own []string, asked map[string]string, searchPath string) []string {
	env := []string{"TF_CPP_MIN_LOG_LEVEL=1"}
	env = append(env, own...)
	for k, v := range asked {
		env = append(env, k+"="+v)
	}
	if searchPath == "" {
		return env
	}
	path := searchPath
	for _, entry := range env {
		if rest, ok := strings.CutPrefix(entry, "PYTHONPATH="); ok && rest != "" {
			path = prependPath(searchPath, rest)
		}
	}
	return append(env, "PYTHONPATH="+path)
}

// DialPeer connects to a unix socket if a process of this user serves it.
func DialPeer(path string) (*net.UnixConn, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	peer, err := peerOf(conn)
	if err == nil && int(peer.Uid) != os.Getuid() {
		err = fmt.Errorf(
			"the socket of the Python that tasks are forked from belongs to another user, uid %d: end that process", peer.Uid)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// peerOf returns the credentials of the process that serves a connection.
func peerOf(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var credentials *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		credentials, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return credentials, credErr
}
