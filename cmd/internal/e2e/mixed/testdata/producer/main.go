// Command producer claims coupons and sets reminders through the SDK until its standard input ends. It is compiled with the SDK
// of this version, and with that of the older one: it uses what both have.
//
//	producer URL NAME CAMPAIGN…      prints a line for each answer
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/client"
)

const (
	// validFor is that of the campaigns; a reminder is due this long after the claim.
	validFor = 59 * time.Minute
	dueAfter = 2 * time.Second
	// attempt bounds one call; the next one has the same id.
	attempt = 10 * time.Second
	// pace is the pause between customers: the load leaves the machine room.
	pace = 5 * time.Millisecond
)

func main() {
	c, err := client.Connect(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for i := 0; ; i++ {
		select {
		case <-ended:
			c.Close()
			return
		case <-time.After(pace):
		}
		campaign, customer := os.Args[3+i%len(os.Args[3:])], fmt.Sprint(os.Args[2], "-", i)
		for range 1 + i%2 { // every other one is sent twice
			for {
				ctx, cancel := context.WithTimeout(context.Background(), attempt)
				out, err := c.Claim(ctx, campaign, customer, client.ID("claim-"+customer))
				cancel()
				if err == nil && out.Refusal != "not_durable" {
					fmt.Printf("claim %s %s %s%s\n", campaign, customer, out.Code, out.Refusal) // one of them is empty
					break
				}
			}
		}
		if i%3 != 0 {
			continue
		}
		for {
			ctx, cancel := context.WithTimeout(context.Background(), attempt)
			out, err := c.Remind(ctx, campaign, customer, "expires", validFor-dueAfter, client.ID("remind-"+customer))
			cancel()
			if err == nil && out.Refusal != "not_durable" {
				fmt.Println("remind", campaign, customer, out.Status, out.Refusal)
				break
			}
		}
	}
}
