package timers

import "github.com/RoaringBitmap/roaring/v2"

// ownExpiries is the set of coupons of a campaign that have an expiry of their own; the others expire with the campaign. It is
// all that is kept of coupons: the expiry of one follows from the reminder that depends on it, due so long before.
//
// Claims come by rising number and are nearly always all of one kind, so this is a run; the bitmap holds earlier runs
// and single coupons that were extended, at most a bit for each.
type ownExpiries struct {
	from, through uint32          // the last run, after all of rest; 0 = none
	rest          *roaring.Bitmap // nil if there never was one
}

func (o *ownExpiries) has(n uint32) bool {
	return n >= o.from && n <= o.through && n != 0 || o.rest != nil && o.rest.Contains(n)
}

func (o *ownExpiries) add(n uint32) {
	switch {
	case o.has(n):
	case n == o.through+1 && o.through != 0:
		o.through = n
	case n > o.through && (o.through != 0 || o.rest == nil || o.rest.IsEmpty() || n > o.rest.Maximum()):
		o.settle()
		o.from, o.through = n, n
	default:
		o.bitmap().Add(n)
	}
}

func (o *ownExpiries) remove(n uint32) {
	if !o.has(n) {
		return
	}
	o.settle()
	o.rest.Remove(n)
}

// settle moves the run into the bitmap.
func (o *ownExpiries) settle() {
	if o.through == 0 {
		return
	}
	if o.from == o.through {
		o.bitmap().Add(o.from)
	} else {
		o.bitmap().AddRange(uint64(o.from), uint64(o.through)+1)
	}
	o.from, o.through = 0, 0
}

func (o *ownExpiries) bitmap() *roaring.Bitmap {
	if o.rest == nil {
		o.rest = roaring.New()
	}
	return o.rest
}

// frozen is a copy that the owner's writing does not change.
func (o *ownExpiries) frozen() ownExpiries {
	c := *o
	if c.rest != nil {
		c.rest = c.rest.Clone()
	}
	return c
}

// runs calls f for every run, rising. It changes nothing.
func (o *ownExpiries) runs(f func(from, through uint32)) {
	var from, through uint32
	add := func(a, b uint32) {
		if through != 0 && a == through+1 {
			through = b
			return
		}
		if through != 0 {
			f(from, through)
		}
		from, through = a, b
	}
	if o.rest != nil {
		for it := o.rest.Iterator(); it.HasNext(); {
			n := it.Next()
			add(n, n)
		}
	}
	if o.through != 0 {
		add(o.from, o.through)
	}
	if through != 0 {
		f(from, through)
	}
}

// load adds a run that lies after all others.
func (o *ownExpiries) load(from, through uint32) {
	if o.through != 0 && from == o.through+1 {
		o.through = through
		return
	}
	o.settle()
	o.from, o.through = from, through
}
