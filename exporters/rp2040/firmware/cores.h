/* The second core: takes a share of each part of a step. */
#ifndef CORES_H
#define CORES_H

/* Starts the second core; without it, or once it no longer answers, the first one does everything. */
void cores_start(void);

/* 2, or 1 if the second core did not start or stopped answering. */
unsigned cores_running(void);

#endif
