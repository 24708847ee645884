package crashtest_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tidewater/crashtest"
)

// appender is a program that appends records to a log, which is there before; sync makes each durable.
func appender(sync bool) crashtest.Program {
	return func(acknowledge func(id any)) {
		log, err := os.OpenFile("log", os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			panic(err)
		}
		for number := 0; number < 20; number++ {
			fmt.Fprintln(log, number)
			if sync {
				if err := log.Sync(); err != nil {
					panic(err)
				}
			}
			acknowledge(number)
		}
	}
}

func makeLog() {
	if err := os.WriteFile("log", nil, 0o600); err != nil {
		panic(err)
	}
}

func lost(acknowledged []string) (lost []string) {
	text, err := os.ReadFile("log")
	if err != nil {
		panic(err)
	}
	for _, id := range acknowledged {
		if !slices.Contains(strings.Split(string(text), "\n"), id) {
			lost = append(lost, id)
		}
	}
	return lost
}

func needsFUSE(t *testing.T) {
	file, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	file.Close()
}

func TestLogWithSyncsPasses(t *testing.T) {
	needsFUSE(t)
	result := crashtest.Run(t, crashtest.Config{Setup: makeLog, Options: []string{"--cuts=40"}}, appender(true), lost)
	if result.States < 10 || result.Smallest != "" || result.File != "" {
		t.Fatalf("%+v", result)
	}
}

func TestLogWithoutSyncsIsFound(t *testing.T) {
	needsFUSE(t)
	// In a subtest, whose name has signs of regular expressions.
	t.Run("a [log] (of 20)", func(t *testing.T) {
		config := crashtest.Config{Setup: makeLog, Failure: t.TempDir() + "/it's here"}
		result, err := crashtest.Try(t, config, appender(false), lost)
		if err != nil {
			t.Fatal(err)
		}
		const smallest = "power cut after 2 operations, the last: #1 acknowledge 0\n" +
			"1 id acknowledged, the last: 0\n" +
			"1 operation lost:\n" +
			"  #0 write log bytes 0..2 (never made durable)\n" +
			"the check ended with exit status 1\n" +
			"lost 0"
		if result.Failures == 0 || result.Smallest != smallest || !strings.HasSuffix(result.File, "it's here") {
			t.Fatalf("%+v", result)
		}
		if _, err := os.Stat(result.File); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCheckThatPanicsFailsTheState(t *testing.T) {
	needsFUSE(t)
	check := func(acknowledged []string) []string { panic("this is why") }
	config := crashtest.Config{ProgramCommand: []string{"touch", "a file"}, Failure: t.TempDir() + "/failure"}
	result, err := crashtest.Try(t, config, nil, check)
	if err != nil {
		t.Fatal(err)
	}
	if result.Failures == 0 || !strings.Contains(result.Smallest, "panic: this is why") {
		t.Fatalf("%+v", result)
	}
}

func TestCommandsAreProgramsAndChecks(t *testing.T) {
	needsFUSE(t)
	crashtest.Run(t, crashtest.Config{
		SetupCommand:   []string{"touch", "it's"},
		ProgramCommand: []string{"sh", "-c", "echo 1 >it\\'s"},
		CheckCommand:   []string{"test", "-e", "it's"},
	}, nil, nil)
}

func TestProgramThatFailsIsNoFailingState(t *testing.T) {
	needsFUSE(t)
	config := crashtest.Config{ProgramCommand: []string{"sh", "-c", "echo why >&2; exit 3"}}
	_, err := crashtest.Try(t, config, nil, lost)
	if err == nil || !strings.Contains(err.Error(), "why") || !strings.Contains(err.Error(), "before any power cut") {
		t.Fatal(err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	config := crashtest.Config{ProgramCommand: []string{"true"}, Binary: "/nowhere/tidewater"}
	_, err := crashtest.Try(t, config, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "a function or a command for its check") {
		t.Error(err)
	}
	if _, err = crashtest.Try(t, config, nil, lost); err == nil || !strings.Contains(err.Error(), "a second crash test") {
		t.Error(err)
	}
	t.Run("binary", func(t *testing.T) {
		const words = "/nowhere/tidewater is not here: install Tidewater, or set TIDEWATER_PROGRAM"
		if _, err := crashtest.Try(t, config, nil, lost); err == nil || !strings.HasPrefix(err.Error(), words) {
			t.Error(err)
		}
	})
}
