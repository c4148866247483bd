package wire_test

import (
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// A command line, for a program that publishes to NATS without the SDK.
func ExampleCommand() {
	claim := wire.Command{ID: "basket-17", Type: wire.Claim, Campaign: "summer", CustomerID: "ann"}
	fmt.Println(string(claim.AppendJSON(nil)))

	var c wire.Command
	err := wire.ParseCommand([]byte(`{"type":"claim","campaign":"summer","customer":"ann"}`), wire.Defaults{}, &c)
	fmt.Println(err)

	// Output:
	// {"id":"basket-17","type":"claim","campaign":"summer","customer_id":"ann"}
	// customer: unknown field; remove it
}

// An event line, for a program that reads the log.
func ExampleParseEvent() {
	line := `{"type":"coupon.claimed","campaign":"summer","at":"2026-11-27T00:00:00.000123Z","id":"basket-17","n":1,"code":"7KQ2-9F3M-X41H","customer_id":"ann"}`
	var e wire.Event
	if err := wire.ParseEvent([]byte(line), &e); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Type, e.Campaign, e.N, e.CustomerID, e.At.Time().Format(time.Kitchen))

	// Output:
	// coupon.claimed summer 1 ann 12:00AM
}
