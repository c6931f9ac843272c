package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// usage is the resource usage of a process.
type usage struct {
	cpu       float64 // seconds, user and system
	rss, peak int64   // bytes
}

// ticksPerSecond is USER_HZ, the unit of CPU times in /proc, which is constant on Linux.
const ticksPerSecond = 100

// usageOf reads a process's usage from /proc.
func usageOf(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, fmt.Errorf("read the driver's usage: %w", err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const userTime, systemTime = 11, 12
	if len(fields) <= systemTime {
		return usage{}, fmt.Errorf("read the driver's usage: %q", stat)
	}
	var u usage
	for _, f := range fields[userTime : systemTime+1] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return usage{}, fmt.Errorf("read the driver's usage: %w", err)
		}
		u.cpu += float64(n) / ticksPerSecond
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}, fmt.Errorf("read the driver's usage: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		var kB int64
		if _, err := fmt.Sscan(value, &kB); err != nil {
			continue
		}
		switch name {
		case "VmRSS":
			u.rss = kB << 10
		case "VmHWM":
			u.peak = kB << 10
		}
	}
	return u, nil
}
