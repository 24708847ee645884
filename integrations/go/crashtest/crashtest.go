// Package crashtest tests what a power cut leaves of a program's files: every state that it can leave, and a check of
// each, by the command `tidewater crash-test`.
//
// Program and check are functions in the test itself: the command starts the test's own executable again for them, with
// this one test chosen. They work in the current directory. What a test does before [Run] is done again for each.
package crashtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

const (
	// The variable that says which function this process is to run.
	roleVariable = "TIDEWATER_CRASH_TEST"
	// The variable with the path of the command.
	binaryVariable = "TIDEWATER_PROGRAM"
	// Exit status of a function that has run, and found all well. The executable ends with 0 also where it found no
	// test.
	done = 86
)

// Program is the program of a test. It calls acknowledge with an id: from then on a power cut must not lose what the id
// stands for.
type Program func(acknowledge func(id any))

// Check checks a state: of the ids acknowledged before the cut, it returns those that are lost. If it panics or fails
// the test, the state fails, too.
type Check func(acknowledged []string) (lost []string)

// Config says how a test runs. The zero value is good.
type Config struct {
	// Options of the command, such as "--cuts=500" and "--rules=ext4".
	Options []string
	// Setup runs before the program; what it makes is durable.
	Setup func()
	// ProgramCommand, CheckCommand and SetupCommand stand in place of functions: each a command with its arguments. A
	// program writes acknowledged ids to descriptor 3, a check reads them from standard input, and ends with 0 when all
	// is well.
	ProgramCommand, CheckCommand, SetupCommand []string
	// Failure is the file of the smallest failure; by default crash-test.failure in a folder that is kept when the test
	// fails.
	Failure string
	// Binary is the path of the command; by default that in the variable TIDEWATER_PROGRAM, or what PATH has.
	Binary string
}

// Result is the result of a test.
type Result struct {
	// States that were checked, each once.
	States int
	// Failures is how many of them failed: at most one or two, without --keep-going.
	Failures int
	// Text is the result in words.
	Text string
	// Smallest is the smallest failure in words; "" where every state passed.
	Smallest string
	// File holds it, for `tidewater crash-test --replay FILE`.
	File string
}

// Run runs a crash test, and fails t with the smallest failure, or with the reason why nothing was tested. A test may
// run one.
func Run(t testing.TB, config Config, program Program, check Check) *Result {
	t.Helper()
	result, err := Try(t, config, program, check)
	if err != nil {
		t.Fatal(err)
	}
	if result.Failures > 0 {
		t.Fatalf("%s\n\nagain: tidewater crash-test --replay %s", result.Text, result.File)
	}
	return result
}

// Try runs a crash test. A state that fails is no error.
func Try(t testing.TB, config Config, program Program, check Check) (*Result, error) {
	t.Helper()
	if role := os.Getenv(roleVariable); role != "" {
		play(role, config, program, check)
	}
	if os.Getenv("TIDEWATER_MOUNT") != "" {
		return nil, errors.New("a crash test in a crash test")
	}
	if err := once(t.Name()); err != nil {
		return nil, err
	}
	line, err := again(t.Name())
	if err != nil {
		return nil, err
	}
	step := func(role string, here bool, command []string) (string, error) {
		switch {
		case here == (command != nil):
			return "", fmt.Errorf("the crash test needs a function or a command for its %s, and not both", role)
		case here:
			again := fmt.Sprintf("%s=%s %s; test $? = %d", roleVariable, role, line, done)
			// The last lines of a check are kept: stacks would leave no room for the words of a panic.
			if role == "check" {
				return "GOTRACEBACK=none " + again, nil
			}
			return again, nil
		}
		return quoted(command), nil
	}
	checkLine, err := step("check", check != nil, config.CheckCommand)
	if err != nil {
		return nil, err
	}
	programLine, err := step("program", program != nil, config.ProgramCommand)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "crash-test-")
	if err != nil {
		return nil, err
	}
	keep := false
	defer func() {
		if !keep {
			os.RemoveAll(folder)
		}
	}()
	failure := config.Failure
	if failure == "" {
		failure = filepath.Join(folder, "crash-test.failure")
	}
	if failure, err = filepath.Abs(failure); err != nil {
		return nil, err
	}
	record := filepath.Join(folder, "result.json")
	arguments := []string{"crash-test", "--json", record, "--failure", failure, "--check", checkLine}
	if config.Setup != nil || config.SetupCommand != nil {
		setupLine, err := step("setup", config.Setup != nil, config.SetupCommand)
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, "--setup", setupLine)
	}
	arguments = append(append(arguments, config.Options...), "--", "sh", "-c", programLine)
	result, err := command(binary(config), arguments, record)
	if err != nil {
		return nil, err
	}
	if result.Smallest != "" {
		result.File = failure
		keep = config.Failure == ""
	}
	return result, nil
}

// command runs the command, and reads its result.
func command(binary string, arguments []string, record string) (*Result, error) {
	var printed, said bytes.Buffer
	run := exec.Command(binary, arguments...)
	run.Stdout, run.Stderr = &printed, &said
	err := run.Run()
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		const help = "%s is not here: install Tidewater, or set %s to the path of its command"
		return nil, fmt.Errorf(help, binary, binaryVariable)
	}
	// 1: a state fails, or nothing was tested, and then there is no record.
	text, unread := os.ReadFile(record)
	if ended := (*exec.ExitError)(nil); unread != nil || err != nil && !(errors.As(err, &ended) && ended.ExitCode() == 1) {
		return nil, fmt.Errorf("%s crash-test: %v\n%s", binary, err, strings.TrimSpace(said.String()))
	}
	var counts struct{ Tried, Failed *int }
	if err := json.Unmarshal(text, &counts); err != nil || counts.Tried == nil || counts.Failed == nil {
		return nil, fmt.Errorf("%s: no result of a crash test: %v", record, err)
	}
	result := &Result{States: *counts.Tried, Failures: *counts.Failed, Text: strings.TrimSpace(printed.String())}
	// Behind the counts and the line that names the file.
	if _, rest, found := strings.Cut(result.Text, "\n\n"); found {
		_, result.Smallest, _ = strings.Cut(rest, ":\n")
	}
	return result, nil
}

func binary(config Config) string {
	if config.Binary != "" {
		return config.Binary
	}
	if given := os.Getenv(binaryVariable); given != "" {
		return given
	}
	return "tidewater"
}

// play runs a function in a process that was started for it, and ends the process.
func play(role string, config Config, program Program, check Check) {
	switch {
	case role == "program" && program != nil:
		program(acknowledge)
		os.Exit(done)
	case role == "setup" && config.Setup != nil:
		config.Setup()
		os.Exit(done)
	case role == "check" && check != nil:
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			panic(err)
		}
		// Each id ends with a line break.
		ids := strings.Split(string(text), "\n")
		lost := check(ids[:len(ids)-1])
		for _, id := range lost {
			fmt.Println("lost", id)
		}
		if len(lost) == 0 {
			os.Exit(done)
		}
		os.Exit(1)
	}
	panic("this test has no function for " + role + " when it is run again")
}

// acknowledge writes an id to the file of acknowledged ids, in one write: ids of goroutines do not mix.
func acknowledge(id any) {
	file, err := os.OpenFile(os.Getenv("TIDEWATER_ACK"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, "%v\n", id)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		panic(err)
	}
}

var (
	ran      = map[string]bool{}
	ranMutex sync.Mutex
)

// once allows a test one crash test: a process that runs a function takes the first that it comes to.
func once(name string) error {
	ranMutex.Lock()
	defer ranMutex.Unlock()
	if ran[name] {
		return fmt.Errorf("%s runs a second crash test: a test may have one", name)
	}
	ran[name] = true
	return nil
}

// again is a line for sh that runs one test of this executable.
func again(name string) (string, error) {
	executable, err := os.Executable()
	if err != nil {
		return "", err
	}
	parts := strings.Split(name, "/")
	for index, part := range parts {
		parts[index] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return quoted([]string{executable, "-test.run=" + strings.Join(parts, "/"), "-test.count=1"}), nil
}

// quoted is words as sh reads them.
func quoted(words []string) string {
	var line []string
	for _, word := range words {
		line = append(line, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	return strings.Join(line, " ")
}
