/* Events: places in streams, which others wait for. Inside a capture they are edges of its graph. */

#include "device.h"

#include <algorithm>

using namespace standin;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    locked now(everything);
    cudaError_t code = entered("cudaEventCreateWithFlags");
    if (!code)
        *out = new CUevent_st{current_device(), !(flags & cudaEventDisableTiming), NULL, NULL, {}};
    return result(code);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    locked now(everything);
    cudaError_t code = entered("cudaEventDestroy");
    if (!event)
        return result(cudaErrorInvalidResourceHandle);
    delete event;
    return result(code);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    locked now(everything);
    cudaError_t code = entered("cudaEventRecord");
    if (code)
        return result(code);
    if (event->device != stream->device)
        return result(cudaErrorInvalidResourceHandle);
    event->capture = stream->capture;
    event->place = NULL;
    if (stream->capture) {
        event->last = stream->last;
        return result(cudaSuccess);
    }
    event->place = std::make_shared<mark>();
    add(stream, {task::RECORD, nullptr, "an event", event->place, NULL});
    return result(cudaSuccess);
}

/* A wait that makes the stream a part of the event's capture, or an edge within it. */
static cudaError_t wait_in_capture(CUstream_st *stream, CUevent_st *event)
{
    const std::shared_ptr<capture> mine = stream->capture, its = event->capture;
    if (!its) { /* work outside the capture: nothing that a graph could wait for */
        if (!event->place)
            return cudaSuccess;
        mine->invalid = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (its->ended)
        return cudaErrorCapturedEvent;
    if (mine && mine != its) {
        mine->invalid = its->invalid = true;
        return cudaErrorStreamCaptureMerge;
    }
    if (!mine)
        stream->last.clear();
    stream->capture = its;
    stream->last.insert(event->last.begin(), event->last.end());
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    locked now(everything);
    cudaError_t code = entered("cudaStreamWaitEvent");
    if (code)
        return result(code);
    if (drops(&counted.waits, wished().dropped))
        return result(cudaSuccess);
    if (stream->capture || event->capture)
        return result(wait_in_capture(stream, event));
    if (event->place)
        add(stream, {task::WAIT, nullptr, "a wait", event->place, NULL});
    return result(cudaSuccess);
}

/* For calls of the host about a capture's event: none can be answered. */
static cudaError_t captured(CUevent_st *event)
{
    if (!event->capture)
        return cudaSuccess;
    event->capture->invalid = true;
    return cudaErrorCapturedEvent;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    locked now(everything);
    cudaError_t code = entered("cudaEventSynchronize");
    if (!code)
        code = captured(event);
    if (!code && !drops(&counted.host_waits, wished().hasty) && event->place) {
        const std::shared_ptr<mark> place = event->place;
        finish(place);
    }
    return result(code ? code : sticky(event->device));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    locked now(everything);
    cudaError_t code = entered("cudaEventQuery");
    if (!code)
        code = captured(event);
    if (code || !event->place)
        return result(code);
    const std::shared_ptr<mark> place = event->place;
    return result(advance(place) ? sticky(event->device) : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *out, cudaEvent_t from, cudaEvent_t to)
{
    locked now(everything);
    cudaError_t code = entered("cudaEventElapsedTime");
    if (!code && (!from->timed || !to->timed || !from->place || !to->place))
        code = cudaErrorInvalidResourceHandle;
    if (!code && (!from->place->passed || !to->place->passed))
        code = cudaErrorNotReady;
    if (code)
        return result(code);
    *out = std::chrono::duration<float, std::milli>(to->place->when - from->place->when).count();
    return result(cudaSuccess);
}
