package feed

import "github.com/tfcluster/tfcluster/cluster/clusterpb"

// Order is an order for a holder, as it is on the wire.
type Order struct {
	Holder string
	*clusterpb.HolderOrder
}

func orderLease(holder string, l *clusterpb.FeedLease) Order {
	return Order{holder, &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Lease{Lease: l}}}
}

func orderAllow(holder string, a *clusterpb.FeedAllow) Order {
	return Order{holder, &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Allow{Allow: a}}}
}

func orderMove(holder string, m *clusterpb.FeedMove) Order {
	return Order{holder, &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Move{Move: m}}}
}

func orderEpochOver(holder string, o *clusterpb.FeedEpochOver) Order {
	return Order{holder, &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_EpochOver{EpochOver: o}}}
}

func orderOver(holder string, o *clusterpb.FeedOver) Order {
	return Order{holder, &clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Over{Over: o}}}
}
