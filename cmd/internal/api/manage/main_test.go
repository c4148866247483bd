package manage_test

import (
	"os"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
