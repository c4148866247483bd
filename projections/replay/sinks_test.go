package replay

import "context"

// typesSink remembers the types of events by lane.
func typesSink(into *[lanes][]string) Sink {
	return Func(func(_ context.Context, b *Batch) error {
		for i := range b.Events {
			into[b.Lane] = append(into[b.Lane], b.Events[i].Type.String())
		}
		return nil
	})
}

// channelSink sends places.
func channelSink(to chan<- Position) Sink {
	return Func(func(ctx context.Context, b *Batch) error {
		for i := range b.Events {
			select {
			case to <- b.Events[i].Position:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
}

// csvSink remembers rows as CSV has them.
func csvSink(into *[]csvRow) Sink {
	return Func(func(_ context.Context, b *Batch) error {
		for i := range b.Events {
			var row csvRow
			columnsOf(&b.Events[i], &row)
			*into = append(*into, row)
		}
		return nil
	})
}
