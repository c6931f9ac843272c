package main

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestStrangers: idle connections without a certificate, more than the driver's limit of descriptors, do
// not prevent clients and agents from connecting.
func TestStrangers(t *testing.T) {
	t.Setenv(descriptorsVar, "256")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := reserve(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	s.join(ctx, s.configs[:1])
	for range 300 {
		idle, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.configs[0].GetDriver().GetCoordinator())
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
	}
	time.Sleep(500 * time.Millisecond) // the driver has accepted as many as it will
	client, err := client.Dial(ctx, clusterName)
	if err != nil {
		t.Fatalf("a client cannot connect: %v", err)
	}
	defer client.Close()
	s.join(ctx, s.configs[1:])
	began := time.Now()
	if err := s.ready(ctx); err != nil {
		t.Fatalf("an agent cannot join: %v", err)
	}
	t.Logf("an agent joined after %s", time.Since(began))
	if _, err := client.Status(ctx, &clusterpb.StatusRequest{}); err != nil {
		t.Errorf("status: %v", err)
	}
}
