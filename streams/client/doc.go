// Package client is scrip's Go SDK: claim, redeem and manage coupons over a NATS connection.
//
//	c, err := client.Connect("nats://127.0.0.1:4222")
//	defer c.Close()
//	out, err := c.Claim(ctx, "summer", "customer-17")
//	switch {
//	case err != nil:       // not known, or never sent: retry with the id in the error
//	case out.Refused():    // an answer: out.Refusal is sold_out, campaign_paused, …
//	default:               // out.Code is the customer's, and on disk
//	}
//
// A refusal is an outcome, not an error: the command was decided and had no effect. Errors are a [*UnknownError] (sent,
// no answer in time: it may have had its effect), a [*NotSentError] (it had none) or [ErrClosed].
//
// Commands and queries take one of these paths:
//
//	claim, remind, unremind ──lane computed here──> scrip.lane.<lane>.shop        concurrent calls share messages
//	redeem, void, campaigns, … ──> micro service scrip.redeem … ──> lane          it knows the campaign of a code
//	queries ──> micro service scrip.campaign.show … ──> the lane's owner
//
// Every command has an id; without one it gets a UUIDv7. A retry with the same id gets the same answer. By that this
// package survives lost messages, reconnects and failovers: it sends the same lines again until they are answered or the
// caller's context ends. Set an id of your own ([ID]) if your program may retry after a crash of its own.
//
// Owner: a Client owns one goroutine for its answers and one that watches the log, started by New and ended by Close. A
// crash of the program loses the answers, not the effects: retry under the same ids.
//
// The package needs nats.go and a few small libraries, no server and no database.
package client
