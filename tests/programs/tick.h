// Waits until the system stamps changes of files with a later instant than this one. It stamps them by the coarse
// clock, which moves by ticks, and a tick that comes late moves it to an instant that is past.
#include <time.h>
#include <unistd.h>

static void next_tick(void) {
    struct timespec now, tick;
    clock_gettime(CLOCK_REALTIME, &now);
    do {
        usleep(500);
        clock_gettime(CLOCK_REALTIME_COARSE, &tick);
    } while (tick.tv_sec < now.tv_sec || (tick.tv_sec == now.tv_sec && tick.tv_nsec <= now.tv_nsec));
}
