package protocol_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// checkError checks that an error has one line and contains the texts.
func checkError(t *testing.T, err, is error, texts ...string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Fatalf("the error is %v, want %v", err, is)
	}
	t.Log(err)
	for _, w := range append(texts, "") {
		if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is not in the one line: %v", w, err)
		}
	}
}

func testRefusals(t *testing.T, y *yarn) {
	c, ctx := y.client(t), deadline(t)
	for _, tt := range []struct {
		change func(*yarnpb.ApplicationSubmissionContext)
		is     error
	}{
		{func(s *yarnpb.ApplicationSubmissionContext) { s.Queue = new("nobody") }, protocol.ErrQueue},
		{func(s *yarnpb.ApplicationSubmissionContext) { s.Queue = new("root") }, protocol.ErrQueue},
		{func(s *yarnpb.ApplicationSubmissionContext) {
			s.UnmanagedAm = nil
			s.Resource = protocol.MemoryAndCores(1<<20, 1, nil)
		}, protocol.ErrTooLarge},
	} {
		id, _, err := c.NewApplication(ctx)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Submit(ctx, submission(id, tt.change))
		if err == nil { // some submissions are rejected after the response
			_, err = c.AwaitMasterToken(ctx, id, nil)
		}
		checkError(t, err, tt.is)
	}
	for _, tt := range []struct {
		ask protocol.ContainerRequest
		is  error
	}{
		{protocol.ContainerRequest{ID: 1, Resource: protocol.MemoryAndCores(1<<20, 1, nil)}, protocol.ErrTooLarge},
		{
			protocol.ContainerRequest{ID: 1, Resource: protocol.MemoryAndCores(64, 1, map[string]int64{"yarn.io/gpu": 3})},
			protocol.ErrTooLarge,
		},
		{protocol.ContainerRequest{ID: 1, Resource: protocol.MemoryAndCores(64, 1, nil), Label: "nobody"}, protocol.ErrLabel},
	} {
		m := submit(t, y, nil)
		m.register()
		m.Request(tt.ask)
		_, err := m.Allocate(m.ctx, 0)
		checkError(t, err, tt.is)
		m.Withdraw(tt.ask.ID)
		m.containers(small(2)) // the master can go on
		m.finish()
	}
	if _, err := c.Queue(ctx, "nobody"); err == nil {
		t.Error("Queue returns an unknown queue")
	}
	id, err := protocol.ParseApplication("application_1_0001")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Report(ctx, id)
	checkError(t, err, protocol.ErrGone, "application_1_0001")
}

func testQueries(t *testing.T, y *yarn) {
	c, ctx := y.client(t), deadline(t)
	m := submit(t, y, func(s *yarnpb.ApplicationSubmissionContext) { s.ApplicationTags = []string{"questions"} })
	if apps, err := c.Applications(ctx, "questions"); err != nil || len(apps) != 1 ||
		!proto.Equal(apps[0].GetApplicationId(), m.id) {
		t.Errorf("applications with the tag: %v %v", apps, err)
	}
	if q, err := c.Queue(ctx, "ml"); err != nil || q.GetQueueName() != "ml" && q.GetQueueName() != "root.ml" ||
		q.GetCapacity() != 0.5 {
		t.Errorf("the queue is %v: %v", q, err)
	}
	nodes, err := c.NodeReports(ctx)
	if err != nil || len(nodes) != 2 || gpus(nodes[0].GetCapability()) != 2 {
		t.Errorf("the nodes are %v: %v", nodes, err)
	}
	if labels, err := c.Labels(ctx); err != nil || len(labels) != 1 || labels[0].GetName() != "fast" {
		t.Errorf("the labels are %v: %v", labels, err)
	}
	for range 2 {
		if err := c.Kill(ctx, m.id, "no more queries"); err != nil {
			t.Error(err)
		}
	}
	if r, err := c.Report(ctx, m.id); err != nil || r.GetYarnApplicationState() != yarnpb.YarnApplicationState_KILLED {
		t.Errorf("killed, it is %v: %v", r, err)
	}
	_, err = m.Register(ctx, protocol.Contact{})
	checkError(t, err, protocol.ErrGone)
}
